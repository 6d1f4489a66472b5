"""AWS's packages: where they come from, in which versions, and which of them are here.

Nothing is imported: torch_neuronx reaches for the device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec

from neuron_llm.backends.neuron.target import MODEL_BUILDER, Binding
from neuron_llm.errors import ArtifactError

PACKAGE_INDEX = "https://pip.repos.neuron.amazonaws.com"
NEURONX_DISTRIBUTED = "neuronx-distributed"
INSTALL_LINE = ("neuronx-cc", "torch-neuronx")
"""What the documented install line asks for; the rest follows."""

# The documented install line, and what belongs to the release of its torch-neuronx.
_PINS = {
    "neuronx-cc": "2.27.5334.0",
    "torch-neuronx": "2.9.0.2.15.32035",
    NEURONX_DISTRIBUTED: "0.19.28492",
    "libneuronxla": "2.2.17544.0",
    "torch-xla": "2.9.0",
}
# How the packages describe themselves that only hold AWS's names on the public index.
_STUB_DESCRIPTION = re.compile(r"^WRONG PACKAGE\b", re.MULTILINE)


def install_command(*names: str) -> str:
    """Return the line that installs packages in their pinned versions from AWS's index."""
    pins = " ".join(f"{name}=={_PINS[name]}" for name in names)
    return f"python -m pip install --extra-index-url {PACKAGE_INDEX} {pins}"


def is_stub(package_metadata: str) -> bool:
    """Whether metadata is of an empty package that only holds a name on the public index."""
    return _STUB_DESCRIPTION.search(package_metadata) is not None


def require_packages(binding: Binding) -> None:
    """Pass where the packages are installed that a binding imports.

    Raises:
        ArtifactError: one is not, or the stub of the public index is; the hint installs it.
    """
    _require("backend `neuron`", "torch-neuronx", INSTALL_LINE)
    if binding == MODEL_BUILDER:
        _require(f"`binding: {binding}`", NEURONX_DISTRIBUTED, (NEURONX_DISTRIBUTED,))


def installed_binding() -> Binding:
    """Return what `binding: auto` means on this machine: graphs share what they can."""
    try:
        require_packages(MODEL_BUILDER)
    except ArtifactError:
        return "trace"
    return MODEL_BUILDER


def _require(needed_by: str, name: str, install: Sequence[str]) -> None:
    hint = f"install it: `{install_command(*install)}`"
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        distribution = None
    if distribution is not None and is_stub(distribution.read_text("METADATA") or ""):
        raise ArtifactError(
            f"{needed_by} needs AWS's {name}; {distribution.version} is an empty stub "
            "of the public index",
            hint=hint,
        )
    if distribution is None or find_spec(name.replace("-", "_")) is None:
        raise ArtifactError(f"{needed_by} needs {name}, which is not installed", hint=hint)
