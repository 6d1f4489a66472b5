"""One violation of the configuration's rules, and how it is put into words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neuron_llm.errors import ConfigError

MAX_SHOWN_CHARS = 80
MAX_SHOWN_ITEMS = 16


@dataclass(frozen=True)
class Fault:
    """What is wrong with one key.

    Attributes:
        key: dotted path such as `neuron_config.num_seqs_buckets`, an item's index in brackets
            behind it; empty when the file as a whole is meant.
        text: value, rule and way out: `[128, 64] must ascend strictly; write [64, 128]`.
        line: 1-based, or None to look it up by the key.
    """

    key: str
    text: str
    line: int | None = None

    def located(self, path: str, lines: Mapping[str, int]) -> str:
        """Return the whole sentence, `configs/x.yaml:12: max_num_seqs: 0 must be ...`.

        A key that the file does not contain has no line of its own.
        """
        line = self.line_in(lines)
        place = path if line is None else f"{path}:{line}"
        return ": ".join(part for part in (place, self.key, self.text) if part)

    def line_in(self, lines: Mapping[str, int]) -> int | None:
        """Return the line of the fault; a list item has the line of its key."""
        return self.line or lines.get(self.key.partition("[")[0])


def config_error(path: str, faults: Iterable[Fault], lines: Mapping[str, int]) -> ConfigError:
    """Return the one error that reports every fault of a file, in the order of its lines."""
    ordered = sorted(faults, key=lambda fault: fault.line_in(lines) or 0)
    sentences = tuple(dict.fromkeys(fault.located(path, lines) for fault in ordered))
    assert sentences, "an error needs a fault"
    noun = "fault" if len(sentences) == 1 else "faults"
    return ConfigError(f"{len(sentences)} {noun} in `{path}`", faults=sentences)


def shown(value: object, *, depth: int = 2) -> str:
    """Return a value as YAML would write it in one line, cut where it gets long or deep."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."
    if isinstance(value, list | tuple):
        if depth == 0:
            return "[...]"
        items = [shown(item, depth=depth - 1) for item in value[:MAX_SHOWN_ITEMS]]
        more = ["..."] if len(value) > MAX_SHOWN_ITEMS else []
        return f"[{', '.join(items + more)}]"
    if isinstance(value, dict):
        if depth == 0:
            return "{...}"
        pairs = list(value.items())[:MAX_SHOWN_ITEMS]
        return "{" + ", ".join(f"{k}: {shown(v, depth=depth - 1)}" for k, v in pairs) + "}"
    return str(value)
