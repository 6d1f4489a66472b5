"""Graphs called through their C interface: same bits as torch's runner, other threads run on."""

from __future__ import annotations

import gc
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from conftest import Compiled
from torch._C._aoti import AOTIModelContainerRunnerCpu

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.cpu.aot import _require_no_fallbacks
from neuron_llm.backends.cpu.session import CpuSession
from neuron_llm.backends.cpu.shared_object import SharedObject
from neuron_llm.backends.graph.inputs import StepTokens, prefill_inputs
from neuron_llm.errors import ArtifactError, CompileError
from neuron_llm.scheduler import PrefillBucket

BUCKET = PrefillBucket(16)


class Case:
    """One graph of the tiny Llama, its inputs, and how to load it."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        settings = artifact.manifest.settings
        self.directory = artifact.directory / "graphs" / BUCKET.name
        chunk = StepTokens(list(range(16)), 0, [1, 2, 3, 4])
        self.inputs = prefill_inputs(
            BUCKET, chunk, max_model_len=settings.max_model_len, block_size=settings.block_size
        )

    def session(self) -> CpuSession:
        session = self.artifact.load(self_test=False)
        assert isinstance(session, CpuSession)
        return session

    def torch_call(self, session: CpuSession) -> Callable[[], torch.Tensor]:
        """Return the same graph over the same weights and caches, run by torch's own runner."""
        runner = AOTIModelContainerRunnerCpu(str(self.directory / "graph.so"), 1)
        names = runner.get_constant_names_to_original_fqns()
        constants = session._graphs[BUCKET]._constants
        loaded = dict(zip(sorted(names), constants, strict=True))
        runner.update_constant_buffer(loaded, False, True, True)
        logits = torch.zeros(1, self.artifact.manifest.model.vocab_size)
        tensors = [logits, *self.inputs.as_tuple(), *session.key_caches, *session.value_caches]

        def call() -> torch.Tensor:
            runner.run(tensors)
            return logits

        return call


@pytest.fixture(scope="module")
def case(llama: Compiled) -> Iterator[Case]:
    yield Case(Artifact.open(llama.artifact))


def test_outputs_and_kv_cache_equal_those_of_torchs_runner_bit_for_bit(case: Case) -> None:
    ours, theirs = case.session(), case.session()
    logits = ours.execute(BUCKET, case.inputs)
    assert logits.shape == (1, 272) and logits.abs().max() > 0
    assert torch.equal(logits, case.torch_call(theirs)())
    for mine, other in zip(ours.key_caches, theirs.key_caches, strict=True):
        assert torch.equal(mine, other) and mine.abs().max() > 0


def test_every_call_of_a_bucket_writes_into_the_same_memory(case: Case) -> None:
    session = case.session()
    first = session.execute(BUCKET, case.inputs)
    kept = first.clone()
    first.fill_(7)
    second = session.execute(BUCKET, case.inputs)
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(second, kept)


class Spinner:
    """A thread that counts. Its short pauses let a call that has ended go on at once."""

    def __init__(self) -> None:
        self.count = 0
        self.is_over = False
        self.thread = threading.Thread(target=self._spin)

    def _spin(self) -> None:
        while not self.is_over:
            for _ in range(1000):
                self.count += 1
            time.sleep(1e-5)

    def speed(self, call: Callable[[], object], num_calls: int) -> float:
        """Return how much the thread counts per second of `call`."""
        started, before = time.perf_counter(), self.count
        for _ in range(num_calls):
            call()
        return (self.count - before) / (time.perf_counter() - started)


@pytest.fixture
def spinner() -> Iterator[Spinner]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    spinner = Spinner()
    spinner.thread.start()
    yield spinner
    spinner.is_over = True
    spinner.thread.join()
    torch.set_num_threads(num_threads)


def test_another_thread_keeps_its_speed_while_a_graph_runs(case: Case, spinner: Spinner) -> None:
    session = case.session()
    torch_call = case.torch_call(case.session())
    ours, torchs = 0.0, 1.0
    for _ in range(100):
        solo = spinner.speed(lambda: time.sleep(0.1), 1)
        ours = max(ours, spinner.speed(lambda: session.execute(BUCKET, case.inputs), 50) / solo)
        torchs = min(torchs, spinner.speed(torch_call, 50) / solo)
        # Other processes want the cores too: the best of a few rounds counts.
        if ours > 0.5 and torchs < 0.25:
            break
    assert ours > 0.5
    # Under torch's runner it keeps 1 to 3 % on an idle machine: this does test the lock.
    assert torchs < 0.25


def test_an_unloaded_session_maps_no_weights_and_holds_no_kv_cache(case: Case) -> None:
    def num_mappings() -> int:
        return Path("/proc/self/maps").read_text().count(str(case.artifact.directory / "weights"))

    gc.collect()
    before = num_mappings()
    session = case.session()
    session.execute(BUCKET, case.inputs)
    assert num_mappings() > before
    del session
    gc.collect()
    assert num_mappings() == before


def test_a_missing_constant_is_an_error_that_names_the_graph(case: Case) -> None:
    graph = SharedObject(case.directory / "graph.so", "prefill_t16")
    with pytest.raises(ArtifactError, match=r"graph `prefill_t16` failed in .*UserManaged"):
        graph.set_constants({"nothing": torch.zeros(1)})


def test_a_file_that_is_no_shared_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "graph.so"
    path.write_text("no code")
    with pytest.raises(ArtifactError, match="graph `decode_b1_c64` cannot be loaded"):
        SharedObject(path, "decode_b1_c64")


def test_a_wrong_number_of_inputs_never_reaches_the_graph(case: Case) -> None:
    graph = SharedObject(case.directory / "graph.so", "prefill_t16")
    with pytest.raises(AssertionError):
        graph.run([torch.zeros(1)])


def test_the_kv_cache_takes_no_memory_before_it_is_written(case: Case) -> None:
    session = case.session()
    assert all(not cache.any() for cache in (*session.key_caches, *session.value_caches))
    assert {cache.data_ptr() % 4096 for cache in session.value_caches} == {0}


def test_a_graph_with_operators_that_need_torchs_runner_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "package.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/a.wrapper_metadata.json", "{}")
    with zipfile.ZipFile(path) as archive:
        _require_no_fallbacks(archive)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("m/a.wrapper.json", '{"nodes": [{"node": {"target": "my::operator"}}]}')
    with (
        zipfile.ZipFile(path) as archive,
        pytest.raises(CompileError, match=r"no C interface: `my::operator`"),
    ):
        _require_no_fallbacks(archive)
