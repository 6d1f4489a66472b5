"""The Python packages that everything needs: which are installed, and whether they import."""

from __future__ import annotations

import email
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from neuron_llm.backends.neuron.packages import is_stub
from neuron_llm.doctor.finding import Finding, note, obstacle, ok
from neuron_llm.doctor.host import Host

IMPORT_TIMEOUT_S = 120.0
_PROJECT = "neuron-llm"
# Named one by one; whatever else the project requires is counted.
MAIN_PACKAGES = ("torch", "transformers")


@dataclass(frozen=True)
class Package:
    """An installed package, by its own metadata.

    Attributes:
        name: as it was asked for.
        version: empty if the metadata cannot be read.
        requires: what it requires, as its metadata says it.
        requires_python: the Python versions that it takes, or None.
        is_stub: an empty package that only holds the name on the public index.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    is_stub: bool = False


@dataclass(frozen=True)
class UnmetRequirement:
    """What a package requires of another that is installed in another version, or not at all."""

    package: str
    dependency: str
    specifier: str
    found: str | None


def read_package(name: str, package_path: Sequence[str]) -> Package | None:
    """Return an installed package without importing it; None if there is none."""
    for distribution in metadata.distributions(name=name, path=list(package_path)):
        try:
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        except (OSError, ValueError):
            text = ""
        headers = email.message_from_string(text)
        return Package(
            name=name,
            version=headers["Version"] or "",
            requires=tuple(headers.get_all("Requires-Dist", [])),
            requires_python=headers["Requires-Python"],
            is_stub=is_stub(text),
        )
    return None


def requirements(package: Package) -> Iterator[Requirement]:
    """Yield what a package requires on this Python and system, leaving out its extras."""
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def unmet_requirements(package: Package, package_path: Sequence[str]) -> list[UnmetRequirement]:
    """Return what a package requires and does not find."""
    unmet = []
    for requirement in requirements(package):
        other = read_package(requirement.name, package_path)
        if other is None or not accepts(requirement.specifier, other.version):
            found = None if other is None else other.version
            unmet.append(
                UnmetRequirement(package.name, requirement.name, str(requirement.specifier), found)
            )
    return unmet


def accepts(specifier: SpecifierSet, version: str) -> bool:
    """Return whether a version fits; what is no version fits nothing."""
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def probe_packages(host: Host) -> list[Finding]:
    """Return findings about Python and the packages that `run` and `compile` need."""
    project = read_package(_PROJECT, host.package_path)
    if project is None:
        # Python found the code that runs here, but pip does not know it.
        project = Package(_PROJECT, "", requires=MAIN_PACKAGES)
    unmet = {fault.dependency: fault for fault in unmet_requirements(project, host.package_path)}
    names = [requirement.name for requirement in requirements(project)]
    findings = [_python_finding(host, project)]
    for name in names:
        if name in unmet:
            findings.append(_unmet_finding(unmet[name]))
        elif name in MAIN_PACKAGES:
            findings.append(_import_finding(host, name))
    rest = [name for name in names if name not in MAIN_PACKAGES]
    if project.version:
        num_fitting = sum(name not in unmet for name in rest)
        findings.append(ok("requirements", f"{num_fitting} of {len(rest)} other packages fit"))
    else:
        hint = "install it: `python -m pip install -e .` in its folder"
        findings.append(
            note("requirements", f"not checked: {_PROJECT} is not installed by pip", hint=hint)
        )
    return findings


def import_failure(host: Host, module: str) -> str | None:
    """Import a module in a process of its own and return why it does not import, or None."""
    # `-P`: a file in the current folder must not be taken for the package.
    argv = [host.python, "-P", "-W", "ignore", "-c", f"import {module}"]
    result = host.run(argv, IMPORT_TIMEOUT_S)
    return None if result.is_ok else result.reason


def _python_finding(host: Host, project: Package) -> Finding:
    try:
        wanted = SpecifierSet(project.requires_python or "")
    except InvalidSpecifier:
        wanted = SpecifierSet()
    if accepts(wanted, host.python_version):
        return ok("python", host.python_version)
    return obstacle(
        "python",
        f"{host.python_version}, but {_PROJECT} needs `{wanted}`",
        hint="install it into an environment of such a Python",
    )


def _unmet_finding(fault: UnmetRequirement) -> Finding:
    if fault.found is None:
        text = "not installed"
    elif fault.found:
        text = f"{fault.found}, but {fault.package} needs `{fault.specifier}`"
    else:
        text = "installed, but its metadata cannot be read"
    requirement = f"{fault.dependency}{fault.specifier}"
    return obstacle(fault.dependency, text, command=f"python -m pip install '{requirement}'")


def _import_finding(host: Host, name: str) -> Finding:
    package = read_package(name, host.package_path)
    assert package is not None, "its requirement is met"
    failure = import_failure(host, name)
    if failure is None:
        return ok(name, package.version)
    return obstacle(
        name,
        f"{package.version} does not import: {failure}",
        hint=f"unset `LD_LIBRARY_PATH`, `LD_PRELOAD` and `PYTHONPATH`, or install {name} anew",
    )
