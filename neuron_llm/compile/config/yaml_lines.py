"""YAML that remembers where every key stands and refuses one that is given twice.

Scalars follow YAML 1.2's core schema, not 1.1: `no` is text rather than false, `2:8` is text rather
than 128, and `010` is text rather than 8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from neuron_llm.compile.config.fault import Fault


class YamlFaultError(Exception):
    """The text is no YAML mapping; `fault` says where and why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class ConfigYamlLoader(yaml.SafeLoader):
    """Safe loader with the core schema's scalars, and without what a configuration has no use for.

    Aliases let a short file grow without bound, and a tag forces a type on a value that is none.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Build the next node, unless it is an alias or carries a tag."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent):
            raise YamlFaultError(Fault("", f"`*{event.anchor}`: write the value itself", line))
        if getattr(event, "tag", None) is not None:
            raise YamlFaultError(Fault("", f"`{event.tag}`: values need no tag, remove it", line))
        return super().compose_node(parent, index)


# Starting empty drops the scalars of YAML 1.1.
ConfigYamlLoader.yaml_implicit_resolvers = {}
# Python refuses to read integers of thousands of digits; past 18 a number stays text, and the
# configuration refuses it as it refuses other text.
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]{0,17})", list("-+0123456789")),
    (
        "float",
        r"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
        list("-+.0123456789"),
    ),
)
for _tag, _pattern, _first in _CORE_SCHEMA:
    ConfigYamlLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first
    )


@dataclass
class YamlMapping:
    """A YAML document that is a mapping.

    Attributes:
        values: what the document says; of a key given twice, the first value.
        lines: 1-based line of every key, by dotted path.
        faults: one for each repetition of a key, and for each key that is no name.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def parse_yaml_mapping(text: str) -> YamlMapping:
    """Return the mapping that a YAML document consists of.

    Raises:
        YamlFaultError: no YAML, more than one document, empty, or anything but a mapping.
    """
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (column {mark.column + 1})" if mark else ""
        reason = " ".join(part for part in (error.context, error.problem) if part)
        fault = Fault("", f"not YAML: {reason}{place}", mark.line + 1 if mark else None)
        raise YamlFaultError(fault) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"character #x{error.character:04x} is not allowed in YAML; remove it"
        raise YamlFaultError(Fault("", what, line)) from error
    except RecursionError as error:
        fault = Fault("", "nested too deeply; a configuration has two levels")
        raise YamlFaultError(fault) from error


def _parse(text: str) -> YamlMapping:
    loader = ConfigYamlLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise YamlFaultError(
                Fault("", "the file is empty; it needs at least `model: <directory>`")
            )
        if not isinstance(root, yaml.MappingNode):
            kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
            what = f"the file holds {kind}, not keys with values; write `key: value` lines"
            raise YamlFaultError(Fault("", what, root.start_mark.line + 1))
        mapping = YamlMapping()
        mapping.values = _read_mapping(loader, root, "", mapping)
        return mapping
    finally:
        loader.dispose()


def _read_mapping(
    loader: ConfigYamlLoader, node: yaml.MappingNode, prefix: str, mapping: YamlMapping
) -> dict[str, Any]:
    """Read key by key: a plain loader keeps the last of two values and tells nobody."""
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            mapping.faults.append(Fault(prefix, "a key must be a name", line))
            continue
        name = str(key_node.value)
        key = f"{prefix}.{name}" if prefix else name
        if key in mapping.lines:
            first = mapping.lines[key]
            what = f"given again (first in line {first}); keep one of the two"
            mapping.faults.append(Fault(key, what, line))
            continue
        mapping.lines[key] = line
        values[name] = _read_value(loader, value_node, key, mapping)
    return values


def _read_value(
    loader: ConfigYamlLoader, node: yaml.Node, key: str, mapping: YamlMapping
) -> object:
    # Two levels have names of their own to report; what lies below them is a value.
    if isinstance(node, yaml.MappingNode) and key.count(".") < 2:
        return _read_mapping(loader, node, key, mapping)
    return loader.construct_document(node)
