"""Faults of compile caches: keys that know a path, and compilers that start in service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runner import run_cli
from config_factory import write_config
from conftest import Compiled

import neuron_llm
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.backends.build.key import exported_key
from neuron_llm.backends.cpu import backend as cpu_backend
from neuron_llm.backends.cpu.backend import config_key
from neuron_llm.backends.cpu.export import export_graph
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.compile.compiler import graph_specs
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.scheduler.buckets import DecodeBucket
from neuron_llm.scheduler.policy.coverage import check_coverage

PRINT_KEYS = """\
import json
from pathlib import Path
import neuron_llm
from neuron_llm.backends.cpu.backend import config_key
from neuron_llm.backends.cpu.export import export_graph
from neuron_llm.backends.build.key import exported_key
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.compile.compiler import graph_specs
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
loaded = load_config(Path("tiny.yaml"))
specs = graph_specs(loaded, plan_compile(loaded, loaded.model_spec))
target = CpuTarget.choose(None, custom_ops=True)
graph = export_graph(specs[0], custom_ops=True)
keys = [*(config_key(spec, target) for spec in specs), exported_key(graph.exported, [])]
print(json.dumps([neuron_llm.__file__, keys]))
"""

RUN_EVERY_GRAPH = """\
import json, sys
from neuron_llm import LLM, SamplingParams
llm = LLM(sys.argv[1])
names = []
llm.engine.on_step = lambda step: names.append(step.bucket.name)
ways = [
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.9, "seed": 3},
    {"min_tokens": 16, "stop_token_ids": [9]},
    {"logprobs": 3, "prompt_logprobs": 2, "n": 2},
    {"temperature": 0, "repetition_penalty": 1.2, "presence_penalty": 0.5, "logit_bias": {7: 2.0}},
    {"allowed_token_ids": [3, 4, 5], "min_p": 0.1, "frequency_penalty": 0.5},
    {"temperature": 0, "bad_words": ["a", "hello"], "stop": ["xyz"]},
]
# They end one after the other, so that batches of four, two and one row decode.
params = [
    SamplingParams(ignore_eos=True, max_tokens=4 * n, **way) for n, way in enumerate(ways, 1)
]
for few in (slice(4), slice(4, 8)):
    llm.generate([[n] * (4 + 5 * n) for n in range(4)], params[few])
compilers = ("torch._inductor.codecache", "torch._dynamo.convert_frame")
print(json.dumps([sorted(set(names)), [name for name in compilers if name in sys.modules]]))
"""


def tiny_keys(config: Path) -> list[str]:
    """Return both levels of keys: of every graph of a configuration, and of the first exported."""
    loaded = load_config(config)
    assert loaded.model_spec is not None
    specs = graph_specs(loaded, plan_compile(loaded, loaded.model_spec))
    target = CpuTarget.choose(None, custom_ops=True)
    graph = export_graph(specs[0], custom_ops=True)
    return [*(config_key(spec, target) for spec in specs), exported_key(graph.exported, [])]


def test_keys_hold_no_path_no_user_and_no_installation(tmp_path: Path) -> None:
    """The fault: a key with a path in it finds nothing on the next machine."""
    limits = "max_model_len: 64\nblock_size: 4\nmax_num_batched_tokens: 8\n"
    ann, bob = tmp_path / "ann", tmp_path / "bob"
    for home in (ann, bob):
        home.mkdir()
        write_config(home, limits)
    package = Path(neuron_llm.__file__).parent
    shutil.copytree(package, bob / "neuron_llm", ignore=shutil.ignore_patterns("*.pyc"))
    environment = {**os.environ, "PYTHONPATH": str(bob), "HOME": str(bob), "USER": "bob"}
    ended = subprocess.run(
        [sys.executable, "-c", PRINT_KEYS],
        cwd=bob,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    file, keys = json.loads(ended.stdout)
    assert Path(file).is_relative_to(bob)
    assert keys == tiny_keys(ann / "tiny.yaml")


def test_the_key_of_a_configuration_does_not_change_by_accident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault: an innocent change of the code empties every cache."""
    monkeypatch.setattr(cpu_backend, "graph_environment", lambda _: {"versions": {"torch": "2"}})
    spec = GraphSpec(DecodeBucket(4, 64), {"model_type": "llama"}, "float32", 64, 4, 65)
    target = CpuTarget.choose(None, custom_ops=True)
    assert (
        config_key(spec, target)
        == "fb3ab56957138b2164eadb9c227a2a60652c3944d0cd658284ccbbe30ce4942a"
    )


def test_no_graph_and_no_way_of_sampling_starts_a_compiler_or_waits_for_one(
    llama: Compiled, tmp_path: Path
) -> None:
    """The fault: a graph or the sampling behind it is compiled when a request first needs it."""
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    ended = subprocess.run(
        [sys.executable, "-c", RUN_EVERY_GRAPH, str(llama.artifact)],
        env={**os.environ, **home, "PATH": "", "CXX": "/nowhere"},
        timeout=300,
        capture_output=True,
        text=True,
        check=True,
    )
    names, compilers = json.loads(ended.stdout)
    assert names == sorted(graph.name for graph in read_manifest(llama.artifact).graphs)
    assert compilers == []
    # No cache is looked into, so that nobody's lock can keep a fresh start waiting.
    assert not (tmp_path / "home").exists()


def test_graphs_are_ready_soon_after_they_were_compiled(llama: Compiled) -> None:
    """The fault: seconds for every graph, however warm the cache. Processor time, per graph."""
    artifact = Artifact.open(llama.artifact)
    artifact.load()  # Imports, and the operator library.
    began = time.process_time()
    artifact.load(self_test=False)
    assert (time.process_time() - began) / len(artifact.manifest.graphs) < 1.0


def test_the_buckets_that_a_report_writes_are_all_that_is_compiled_and_hold_every_shape(
    empty_state: Path,
) -> None:
    """The fault: a whole ladder is compiled where three graphs would do."""
    limits = "max_model_len: 512\nmax_num_seqs: 4\nmax_num_batched_tokens: 256\n"
    config = write_config(empty_state, f"{limits}neuron_config:\n  num_seqs_buckets: [4]\n")
    rows = [f"{n},{100 if n % 3 else 230},9" for n in range(30)]
    Path("t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    flags = ("--trace", "t.csv", "--max-graphs", 2, "--write", "hot.yaml")
    assert run_cli("bucket-report", config, *flags).code == 0
    dry_run = run_cli("compile", "hot.yaml", "--dry-run", "--json", "--cache-dir", "cache").document
    names = ["prefill_t100", "prefill_t256", "decode_b4_c512"]
    assert [graph["graph"] for graph in dry_run["graphs"]] == names
    loaded = load_config(Path("hot.yaml"))
    assert loaded.model_spec is not None
    plan = plan_compile(loaded, loaded.model_spec)
    assert [spec.bucket.name for spec in graph_specs(loaded, plan)] == names
    assert check_coverage(plan.buckets, plan.shapes) == ()
