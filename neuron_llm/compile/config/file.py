"""Reading a configuration file, and reporting everything that is wrong with it at once."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.artifact.latest import LATEST_LINK
from neuron_llm.compile.config.config import Config
from neuron_llm.compile.config.fault import Fault, config_error
from neuron_llm.compile.config.rules import broken_rules
from neuron_llm.compile.config.values import check_values
from neuron_llm.compile.config.yaml_lines import YamlFaultError, YamlMapping, parse_yaml_mapping
from neuron_llm.compile.model.model_path import find_model
from neuron_llm.compile.model.model_spec import ModelSpec, read_model_spec
from neuron_llm.errors import ConfigError, ModelNotFoundError, NeuronLLMError, UnsupportedModelError

# Far more than any configuration, far less than a model file given by mistake.
MAX_CONFIG_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class LoadedConfig:
    """A configuration and where it came from.

    Attributes:
        config: what the file says.
        path: the file, as it was given.
        name: the file's stem, which becomes the artifact's name, so some are refused.
        lines: 1-based line of every key, by dotted path.
        model_path: directory or `.gguf` file of the model, None for a hub id.
        model_spec: what the model says about itself, None for a hub id.
    """

    config: Config
    path: Path
    name: str
    lines: Mapping[str, int]
    model_path: Path | None
    model_spec: ModelSpec | None


def load_config(path: Path, *, skip_weights: bool = False) -> LoadedConfig:
    """Load a configuration and check it, together with its model where that is on this machine.

    A relative `model` is looked up from the current directory, then from the file's directory.

    Args:
        path: the YAML file.
        skip_weights: see `read_model_spec`.

    Raises:
        ConfigError: one or more faults, all that could be found.
        UnsupportedModelError: the file is right, but its model cannot be compiled.
    """
    document = _read_document(path)
    checked = check_values(document.values)
    faults = [*_name_faults(path), *document.faults, *checked.faults]
    wrong_keys = checked.wrong_keys | {fault.key for fault in document.faults}
    model_path: Path | None = None
    model_spec: ModelSpec | None = None
    refused: UnsupportedModelError | None = None
    if not wrong_keys & {"model", "revision"}:
        config = checked.config
        try:
            model_path = find_model(config.model, config.revision, path.parent)
            if model_path is not None:
                model_spec = read_model_spec(model_path, skip_weights=skip_weights)
        except ModelNotFoundError as error:
            faults.append(_model_fault(error))
        except UnsupportedModelError as error:
            refused = error
    faults.extend(broken_rules(checked.config, model_spec, wrong_keys))
    if refused is not None:
        if not faults:
            raise refused
        faults.append(_model_fault(refused))
    if faults:
        raise config_error(str(path), faults, document.lines)
    return LoadedConfig(
        config=checked.config,
        path=path,
        name=path.stem,
        lines=document.lines,
        model_path=model_path,
        model_spec=model_spec,
    )


def _name_faults(path: Path) -> list[Fault]:
    """The name becomes a directory's beside the link to the latest artifact."""
    name = path.stem
    # Control characters, and bytes that are no UTF-8.
    odd = [character for character in name if unicodedata.category(character) in ("Cc", "Cs")]
    if name.startswith("."):
        rule = "starts with `.`"
    elif name == LATEST_LINK:
        rule = "is kept for the link to the latest artifact"
    elif odd:
        rule = f"contains the character {ord(odd[0]):#04x}"
    else:
        return []
    return [Fault("", f"the artifact's name {json.dumps(name)} {rule}; rename the file")]


def _model_fault(error: NeuronLLMError) -> Fault:
    return Fault("model", "; ".join(part for part in (error.message, error.hint) if part))


def _read_document(path: Path) -> YamlMapping:
    try:
        return parse_yaml_mapping(_read_text(path))
    except YamlFaultError as error:
        raise config_error(str(path), [error.fault], {}) from error


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _unreadable(path, "a directory, not a file; give a YAML file in it")
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError as error:
        raise _unreadable(path, "no such file; give the path of a YAML file") from error
    except OSError as error:
        raise _unreadable(path, f"not readable: {error.strerror}") from error
    if len(content) > MAX_CONFIG_BYTES:
        what = f"larger than a configuration ({MAX_CONFIG_BYTES} bytes); give a YAML file"
        raise _unreadable(path, what)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault("", f"byte {content[error.start]:#04x} is not UTF-8; save as UTF-8", line)
        raise config_error(str(path), [fault], {}) from error


def _unreadable(path: Path, what: str) -> ConfigError:
    return config_error(str(path), [Fault("", what)], {})
