"""AWS's packages: the real ones or the stubs of the public index, and whether they pair.

Nothing here is imported into this process: torch_neuronx reaches for the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from packaging.version import InvalidVersion, Version

from neuron_llm.backends.neuron.packages import INSTALL_LINE, PACKAGE_INDEX, install_command
from neuron_llm.backends.registry import get_backend
from neuron_llm.doctor.finding import Finding, note, ok, problem
from neuron_llm.doctor.host import Host
from neuron_llm.doctor.packages import (
    Package,
    UnmetRequirement,
    import_failure,
    read_package,
    requirements,
    unmet_requirements,
)
from neuron_llm.errors import ArtifactError

NEURON_PACKAGES = (
    "torch-neuronx",
    "neuronx-cc",
    "neuronx-distributed",
    "torch-xla",
    "libneuronxla",
)

# Which compilers AWS's releases ship beside a torch-neuronx, oldest first.
_COMPILERS = {
    "2.9.0.2.13.24727": {"2.24.5133.0": "2.29"},
    "2.9.0.2.14.27725": {"2.25.3371.0": "2.30"},
    "2.9.0.2.15.32035": {"2.26.6360.0": "2.31", "2.27.5334.0": "2.32", "2.28.7631.0": "2.33"},
}


def probe_neuron_packages(host: Host) -> list[Finding]:
    """Return findings about AWS's packages. None of them decides whether the CPU backend runs."""
    found = {name: read_package(name, host.package_path) for name in NEURON_PACKAGES}
    installed = {name: package for name, package in found.items() if package is not None}
    real = {name: package for name, package in installed.items() if not package.is_stub}
    findings = [
        _stub_finding(package) if package.is_stub else ok(name, package.version or "installed")
        for name, package in installed.items()
    ]
    missing = [name for name in NEURON_PACKAGES if name not in installed]
    if missing:
        hint = f"only the neuron backend needs {'it' if len(missing) == 1 else 'them'}"
        command = None if installed else install_command(*INSTALL_LINE)
        findings.append(note(", ".join(missing), "not installed", hint=hint, command=command))
    findings += _unmet_findings(host, real)
    if "torch-neuronx" in real and "neuronx-cc" in real:
        findings.append(_pair_finding(real["torch-neuronx"], real["neuronx-cc"]))
    if "torch-neuronx" in real:
        findings += _import_findings(host)
    return [*findings, *_backend_findings()]


def _stub_finding(package: Package) -> Finding:
    names = INSTALL_LINE if package.name in INSTALL_LINE else (package.name,)
    return problem(
        package.name,
        f"{package.version} is an empty stub of the public index, not AWS's package",
        hint=f"the real one is on AWS's index, {PACKAGE_INDEX}",
        command=install_command(*names),
    )


def _unmet_findings(host: Host, real: dict[str, Package]) -> list[Finding]:
    findings = []
    for package in real.values():
        for fault in unmet_requirements(_with_torch_pin(package), host.package_path):
            # Of a stub it has been said already that it is none.
            if not _is_stub(host, fault.dependency):
                findings.append(_unmet_finding(fault))
    return findings


def _with_torch_pin(package: Package) -> Package:
    """Add what a version says by itself: torch-neuronx 2.9.0.2.15 and torch-xla 2.9.0 are for 2.9.

    The metadata of torch-xla does not require a torch.
    """
    if package.name not in ("torch-neuronx", "torch-xla"):
        return package
    if any(requirement.name == "torch" for requirement in requirements(package)):
        return package
    try:
        release = Version(package.version).release
    except InvalidVersion:
        return package
    pin = ".".join(map(str, release[:2]))
    return replace(package, requires=(*package.requires, f"torch=={pin}.*"))


def _is_stub(host: Host, name: str) -> bool:
    package = read_package(name, host.package_path)
    return package is not None and package.is_stub


def _unmet_finding(fault: UnmetRequirement) -> Finding:
    found = "which is not installed" if fault.found is None else f"but {fault.found} is installed"
    return problem(
        fault.package,
        f"needs `{fault.dependency}{fault.specifier}`, {found}",
        command=f"python -m pip install --extra-index-url {PACKAGE_INDEX} "
        f"'{fault.dependency}{fault.specifier}'",
    )


def _pair_finding(framework: Package, compiler: Package) -> Finding:
    subject = f"{framework.name} and {compiler.name}"
    compilers = _COMPILERS.get(_public(framework.version))
    if compilers is None:
        return note(
            subject,
            "whether they are of one release is not known for this torch-neuronx",
            hint="AWS's release notes list what belongs together",
        )
    release = compilers.get(_public(compiler.version))
    if release is not None:
        return ok(subject, f"a pair of AWS's SDK {release}")
    known = ", ".join(f"{version} (SDK {sdk})" for version, sdk in compilers.items())
    if _is_newer(compiler.version, compilers):
        return note(
            subject,
            f"{compiler.version} is newer than what is known to go with {framework.version}: "
            f"neuronx-cc {known}",
            hint="AWS's release notes list what belongs together",
        )
    return problem(
        subject,
        f"no documented pair: {framework.version} goes with neuronx-cc {known}; "
        f"{compiler.version} is installed",
        command=install_command(*INSTALL_LINE),
    )


def _is_newer(version: str, known: Iterable[str]) -> bool:
    try:
        return Version(version) > max(map(Version, known))
    except InvalidVersion:
        return False


def _public(version: str) -> str:
    """Return a version without the build behind its `+`."""
    return version.partition("+")[0]


def _backend_findings() -> list[Finding]:
    """Say so where this version cannot use what is installed."""
    try:
        get_backend("neuron")
    except ArtifactError as error:
        return [note("neuron backend", error.message, hint=error.hint)]
    return []


def _import_findings(host: Host) -> list[Finding]:
    failure = import_failure(host, "torch_neuronx")
    if failure is None:
        return [ok("import torch_neuronx", "works")]
    return [
        problem(
            "import torch_neuronx",
            failure,
            hint="it must fit torch, torch-xla and libneuronxla, and find the Neuron runtime",
        )
    ]
