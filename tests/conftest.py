"""Fixtures that cost: tiny models, and artifacts compiled once per session from one cache."""

from __future__ import annotations

import json
import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Other processes share the cores: a thread that waits must not spin for long.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from tiny_models import LLAMA, QWEN3, save_model

from neuron_llm.backends.protocol import BuildEvent

# A shell starts background jobs with SIGINT ignored, and so would every process of a test be.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing in a test depends on how fast the machine is.
settings.register_profile(
    "any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any_machine")


# The files that build the most: begun last, one of them would keep the other process waiting.
BUILDERS = (
    "test_killed_compile.py",
    "test_neuron_job.py",
    "test_neuron_greedy_job.py",
    "test_compiled_families.py",
    "test_batch_invariance.py",
    "test_family_equivalence.py",
    "test_linears.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in BUILDERS)


@dataclass(frozen=True)
class Compiled:
    """A compiled tiny model.

    Attributes:
        config: its configuration file.
        model: its Hugging Face directory.
        artifact: what was compiled.
        events: what the compile reported.
    """

    config: Path
    model: Path
    artifact: Path
    events: tuple[BuildEvent, ...]


LLAMA_CONFIG = """\
model: {model}
dtype: float32
max_model_len: 64
max_num_seqs: 4
max_num_batched_tokens: 16
block_size: 4
neuron_config:
  num_batched_tokens_buckets: [8, 16]
  num_seqs_buckets: [1, 2, 4]
"""

LLAMA_BFLOAT16_CONFIG = """\
model: {model}
dtype: bfloat16
max_model_len: 64
max_num_seqs: 8
max_num_batched_tokens: 16
block_size: 4
neuron_config:
  num_batched_tokens_buckets: [8, 16]
  num_seqs_buckets: [1, 2, 4, 8]
"""

QWEN3_CONFIG = """\
model: {model}
dtype: float32
max_model_len: 160
max_num_seqs: 3
max_num_batched_tokens: 32
block_size: 8
neuron_config:
  num_batched_tokens_buckets: [32]
  num_seqs_buckets: [3]
  decode_context_length_buckets: [128]
"""


@pytest.fixture(scope="session")
def compile_cache(request: pytest.FixtureRequest) -> Path:
    """The compile cache of all tests. It is content-addressed, so it may outlive the session."""
    assert request.config.cache is not None
    return request.config.cache.mkdir("compile")


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this run, the same for all processes that the tests are spread over."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def llama_model(shared_directory: Path) -> Path:
    """A random two-layer Llama with tied embeddings."""
    return saved_once(shared_directory / "llama", LLAMA)


@pytest.fixture(scope="session")
def qwen3_model(shared_directory: Path) -> Path:
    """A random two-layer Qwen3 with odd head counts."""
    return saved_once(shared_directory / "qwen3", QWEN3)


@pytest.fixture(scope="session")
def llama(llama_model: Path, compile_cache: Path, shared_directory: Path) -> Compiled:
    """The Llama compiled: prefill 8 and 16, decode 1, 2 and 4."""
    return compiled_once(llama_model, LLAMA_CONFIG, compile_cache, shared_directory / "l")


@pytest.fixture(scope="session")
def llama_bfloat16(llama_model: Path, compile_cache: Path, shared_directory: Path) -> Compiled:
    """The Llama compiled in bfloat16: prefill 8 and 16, decode 1, 2, 4 and 8."""
    return compiled_once(llama_model, LLAMA_BFLOAT16_CONFIG, compile_cache, shared_directory / "b")


@pytest.fixture(scope="session")
def qwen3(qwen3_model: Path, compile_cache: Path, shared_directory: Path) -> Compiled:
    """The Qwen3 compiled: prefill 32, decode 3 in two context lengths."""
    return compiled_once(qwen3_model, QWEN3_CONFIG, compile_cache, shared_directory / "q")


@pytest.fixture(scope="session")
def tiny_artifact(llama: Compiled) -> Path:
    """The compiled Llama's directory; not to be written to."""
    return llama.artifact


@pytest.fixture(scope="session")
def tiny_config_path(llama: Compiled) -> Path:
    """The compiled Llama's configuration file."""
    return llama.config


def saved_once(directory: Path, settings: dict[str, Any]) -> Path:
    """Write a random model, unless another process of this run has."""
    with FileLock(f"{directory}.lock"):
        return directory if directory.is_dir() else save_model(directory, settings)


def compiled_once(model: Path, config_text: str, cache_dir: Path, directory: Path) -> Compiled:
    """Compile a model, or return what another process of this run has compiled."""
    events_file = directory / "events.json"
    with FileLock(f"{directory}.lock"):
        if not events_file.is_file():
            directory.mkdir()
            compiled = compile_tiny(model, config_text, cache_dir, directory)
            events_file.write_text(json.dumps([asdict(event) for event in compiled.events]))
    events = tuple(BuildEvent(**event) for event in json.loads(events_file.read_text()))
    return Compiled(directory / "tiny.yaml", model, directory / "artifacts" / "tiny", events)


def compile_tiny(model: Path, config_text: str, cache_dir: Path, directory: Path) -> Compiled:
    """Compile a model for the CPU; the artifact lies in `directory/artifacts/tiny`.

    With a torch that cannot, as that of a Neuron host, tests of such artifacts are skipped.
    """
    from torch._inductor import config as inductor_config

    if not hasattr(inductor_config.cpp, "march"):
        pytest.skip("this torch does not compile for the CPU backend")
    from neuron_llm.compile.compiler import compile_artifact
    from neuron_llm.compile.config.file import load_config
    from neuron_llm.compile.options import CompileOptions
    from neuron_llm.compile.plan.plan import plan_compile

    config = directory / "tiny.yaml"
    config.write_text(config_text.format(model=model))
    loaded = load_config(config)
    assert loaded.model_spec is not None
    events: list[BuildEvent] = []
    options = CompileOptions(
        artifacts_dir=directory / "artifacts",
        cache_dir=cache_dir,
        num_jobs=os.cpu_count() or 1,
        force=False,
    )
    result = compile_artifact(
        loaded, plan_compile(loaded, loaded.model_spec), options, events.append
    )
    return Compiled(config, model, result.artifact, tuple(events))


@pytest.fixture
def empty_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
