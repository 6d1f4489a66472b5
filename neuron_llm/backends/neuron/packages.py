"""AWS's packages: where they come from, in which versions, and whether torch-neuronx is here.

Nothing is imported: torch_neuronx reaches for the device.
"""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from neuron_llm.errors import ArtifactError

PACKAGE_INDEX = "https://pip.repos.neuron.amazonaws.com"
INSTALL_LINE = ("neuronx-cc", "torch-neuronx")
"""What the documented install line asks for; the rest follows."""

# The documented install line, and what belongs to the release of its torch-neuronx.
_PINS = {
    "neuronx-cc": "2.27.5334.0",
    "torch-neuronx": "2.9.0.2.15.32035",
    "neuronx-distributed": "0.19.28492",
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


def require_torch_neuronx() -> None:
    """Pass where torch-neuronx is installed.

    Raises:
        ArtifactError: it is not, or the stub of the public index is; the hint installs it.
    """
    hint = f"install it: `{install_command(*INSTALL_LINE)}`"
    try:
        distribution = metadata.distribution("torch-neuronx")
    except metadata.PackageNotFoundError:
        distribution = None
    if distribution is not None and is_stub(distribution.read_text("METADATA") or ""):
        raise ArtifactError(
            f"backend `neuron` needs AWS's torch-neuronx; {distribution.version} is an empty stub "
            "of the public index",
            hint=hint,
        )
    if distribution is None or find_spec("torch_neuronx") is None:
        raise ArtifactError(
            "backend `neuron` needs torch-neuronx, which is not installed", hint=hint
        )
