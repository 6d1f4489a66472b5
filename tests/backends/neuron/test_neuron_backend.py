"""The Neuron backend is there where AWS's package is, and says what is missing where not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from neuron_doubles import DOUBLES, use_doubles

from neuron_llm.backends.neuron import devices
from neuron_llm.backends.neuron.backend import NeuronBackend
from neuron_llm.backends.neuron.devices import DevicesHere, devices_here
from neuron_llm.backends.neuron.neuron_ls import ListedDevice, Listing
from neuron_llm.backends.neuron.packages import installed_binding
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.protocol import BuildRequest
from neuron_llm.backends.registry import get_backend
from neuron_llm.errors import ArtifactError, CompileError

INSTALL = (
    "install it: `python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com "
    "neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035`"
)
INSTALL_NXD = (
    "python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com "
    "neuronx-distributed==0.19.28492"
)
TARGET = NeuronTarget("trn2", 2)
SHARING = NeuronTarget("trn2", 2, binding="model_builder")


def test_without_the_package_the_backend_is_refused_with_the_install_line() -> None:
    with pytest.raises(ArtifactError) as caught:
        get_backend("neuron")
    assert caught.value.message == "backend `neuron` needs torch-neuronx, which is not installed"
    assert caught.value.hint == INSTALL


def test_the_stub_of_the_public_index_is_not_taken_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_neuronx").mkdir()
    (tmp_path / "torch_neuronx" / "__init__.py").touch()
    metadata = tmp_path / "torch_neuronx-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: torch-neuronx\nVersion: 1.0\n\nWRONG PACKAGE: see AWS's index\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ArtifactError, match=r"1\.0 is an empty stub of the public index") as caught:
        get_backend("neuron")
    assert caught.value.hint == INSTALL


def test_with_the_package_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    use_doubles(monkeypatch)
    backend = get_backend("neuron", neuron_target=TARGET)
    assert backend.name == "neuron"
    needed = {"target": ["trn2"], "logical_nc_config": ["2"], "binding": ["trace"]}
    assert backend.requirements() == needed
    versions = backend.versions()
    assert versions["torch-neuronx"] == "2.9.0.2.15.32035+double"
    assert versions["neuronx-cc"] == "2.27.5334.0+double"
    assert backend.diagnose(versions, backend.requirements()) == []


def test_what_differs_from_the_host_that_compiled_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_doubles(monkeypatch)
    backend = NeuronBackend(None)
    versions = {**NeuronBackend(TARGET).versions(), "torch-neuronx": "2.8.0"}
    assert backend.diagnose(versions, {"logical_nc_config": ["1"]}) == [
        "compiled with torch-neuronx 2.8.0, but torch-neuronx here is 2.9.0.2.15.32035+double",
        "compiled for logical cores of 1 physical ones, but they are of 2 here "
        "(`NEURON_LOGICAL_NC_CONFIG`)",
    ]


@pytest.mark.parametrize(
    ("instance_type", "refused"),
    [
        ("trn2.48xlarge", {"inf2", "trn1"}),
        ("inf2.xlarge", {"trn2"}),
        # The same cores: both run either's graphs.
        ("Trn1", {"trn2"}),
        ("trn9.large", set()),
    ],
)
def test_graphs_of_another_generation_are_refused(
    instance_type: str, refused: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    listed = ListedDevice(
        index=0,
        instance_type=instance_type,
        num_cores=None,
        logical_nc_config=None,
        memory_bytes=None,
        processes=(),
    )
    monkeypatch.setattr(devices, "list_devices", lambda *_: Listing("neuron-ls", (listed,)))
    backend = NeuronBackend(None)
    versions = NeuronBackend(TARGET).versions()
    for target in ("inf2", "trn1", "trn2"):
        reasons = backend.diagnose(versions, {"target": [target]})
        here = instance_type.lower().split(".")[0]
        expected = f"compiled for `{target}`, but the devices here are `{here}`"
        assert reasons == ([expected] if target in refused else []), target


def test_the_generation_is_read_from_sysfs_too(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/virtual/neuron_device/neuron0/info/architecture"
    folder.mkdir(parents=True)
    assert devices_here(tmp_path).targets == set()
    (folder / "instance_type").write_text("Inf2\n")
    assert devices_here(tmp_path).targets == {"inf2"}


@pytest.fixture
def without_nxd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let torch-neuronx be installed, and neuronx-distributed not."""
    use_doubles(monkeypatch)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path != str(DOUBLES)])
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in (*DOUBLES.glob("torch_neuronx*"), *DOUBLES.glob("neuronx_cc*")):
        (packages / path.name).symlink_to(path)
    monkeypatch.syspath_prepend(str(packages))
    return packages


def test_graphs_that_share_need_one_more_package(
    without_nxd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_backend("neuron", neuron_target=TARGET).versions().keys() >= {"torch-neuronx"}
    assert installed_binding() == "trace"
    with pytest.raises(ArtifactError) as caught:
        get_backend("neuron", neuron_target=SHARING)
    assert caught.value.message == (
        "`binding: model_builder` needs neuronx-distributed, which is not installed"
    )
    assert caught.value.hint == f"install it: `{INSTALL_NXD}`"
    # The public index has a stub of this name too.
    metadata = without_nxd / "neuronx_distributed-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: neuronx-distributed\nVersion: 0.1\n\nWRONG PACKAGE\n")
    assert installed_binding() == "trace"
    with pytest.raises(ArtifactError, match=r"0\.1 is an empty stub of the public index"):
        get_backend("neuron", neuron_target=SHARING)
    use_doubles(monkeypatch)
    assert installed_binding() == "model_builder"


def test_what_graphs_that_share_lack_here_is_one_reason_with_the_install_line(
    without_nxd: Path,
) -> None:
    versions = {**NeuronBackend(TARGET).versions(), "neuronx-distributed": "0.19.28492"}
    found = NeuronBackend(None).diagnose(versions, NeuronBackend(SHARING).requirements())
    assert found == [
        "compiled with neuronx-distributed 0.19.28492, but neuronx-distributed is not installed "
        f"here: `{INSTALL_NXD}`"
    ]
    assert NeuronBackend(None).diagnose(versions, NeuronBackend(TARGET).requirements()) == []


def test_another_release_than_graphs_were_put_together_by_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_doubles(monkeypatch)
    backend = get_backend("neuron", neuron_target=SHARING)
    assert backend.diagnose(backend.versions(), backend.requirements()) == []
    versions = {**backend.versions(), "neuronx-distributed": "0.18"}
    assert backend.diagnose(versions, backend.requirements()) == [
        "compiled with neuronx-distributed 0.18, but neuronx-distributed here is 0.19.28492+double"
    ]


def test_a_machine_without_devices_cannot_run_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices_here() == DevicesHere(False, frozenset(), frozenset())
    assert "this machine has no Neuron device" in NeuronBackend(None).diagnose({}, {})


def test_devices_are_seen_by_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/neuron_core").touch()
    assert not devices_here(tmp_path).are_there
    (tmp_path / "dev/neuron0").touch()
    assert devices_here(tmp_path).are_there


def test_neuron_ls_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "neuron-ls"
    count = f'echo asked >> "{tmp_path}/calls"'
    tool.write_text(
        f'#!/bin/sh\n{count}\necho \'[{{"neuron_device": 0, "instance_type": "trn2.48xlarge",'
        ' "logical_neuroncore_config": 2}]\'\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    required = {"target": ["inf2"], "logical_nc_config": ["1"]}
    assert NeuronBackend(None).diagnose({}, required)[-2:] == [
        "compiled for `inf2`, but the devices here are `trn2`",
        "compiled for logical cores of 1 physical ones, but they are of 2 here "
        "(`NEURON_LOGICAL_NC_CONFIG`)",
    ]
    assert (tmp_path / "calls").read_text() == "asked\n"


def test_a_missing_compiler_is_named_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_families import PREFILL, graph_spec

    use_doubles(monkeypatch)
    monkeypatch.setenv("PATH", os.defpath)
    build_request = BuildRequest((graph_spec("llama", PREFILL),), tmp_path, 1, lambda _: None)
    with pytest.raises(CompileError, match="`neuronx-cc` is not on PATH"):
        get_backend("neuron", neuron_target=TARGET).compile_graphs(build_request)
