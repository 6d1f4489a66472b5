"""The Neuron backend is there where AWS's package is, and says what is missing where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from neuron_doubles import use_doubles

from neuron_llm.backends.neuron.backend import NeuronBackend
from neuron_llm.backends.neuron.devices import has_device, logical_nc_configs
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.protocol import CompileJob, get_backend
from neuron_llm.errors import ArtifactError, CompileError

INSTALL = (
    "install it: `python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com "
    "neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035`"
)
TARGET = NeuronTarget("trn2", 2)


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
    assert backend.requirements() == {"target": ["trn2"], "logical_nc_config": ["2"]}
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


def test_a_machine_without_devices_cannot_run_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_device() and logical_nc_configs() == set()
    assert "this machine has no Neuron device" in NeuronBackend(None).diagnose({}, {})


def test_devices_are_seen_by_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "neuron_core").touch()
    assert not has_device(tmp_path)
    (tmp_path / "neuron0").touch()
    assert has_device(tmp_path)


def test_a_missing_compiler_is_named_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_families import PREFILL, graph_spec

    use_doubles(monkeypatch)
    monkeypatch.setenv("PATH", os.defpath)
    job = CompileJob((graph_spec("llama", PREFILL),), tmp_path, 1, lambda _: None)
    with pytest.raises(CompileError, match="`neuronx-cc` is not on PATH"):
        get_backend("neuron", neuron_target=TARGET).compile_graphs(job)


def test_sampling_in_the_graph_is_refused_by_its_key(tmp_path: Path) -> None:
    job = CompileJob((), tmp_path, 1, lambda _: None)
    backend = NeuronBackend(NeuronTarget("trn2", 2, samples_greedily=True))
    with pytest.raises(CompileError, match="on_device_sampling_config"):
        backend.compile_graphs(job)
