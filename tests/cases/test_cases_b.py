"""Faults of compile caches: keys that know a path, and compilers that start in service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from config_factory import write_config
from conftest import Compiled

import neuron_llm
from neuron_llm.backends.cpu import backend as cpu_backend
from neuron_llm.backends.cpu.backend import config_key
from neuron_llm.backends.cpu.export import export_graph, exported_key
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.backends.protocol import GraphSpec
from neuron_llm.compile.compiler import graph_specs
from neuron_llm.compile.config_file import load_config
from neuron_llm.compile.manifest import read_manifest
from neuron_llm.compile.plan import plan_compile
from neuron_llm.scheduler.buckets import DecodeBucket

PRINT_KEYS = """\
import json
from pathlib import Path
import neuron_llm
from neuron_llm.backends.cpu.backend import config_key
from neuron_llm.backends.cpu.export import export_graph, exported_key
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.compile.compiler import graph_specs
from neuron_llm.compile.config_file import load_config
from neuron_llm.compile.plan import plan_compile
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
]
# They end one after the other, so that batches of four, two and one row decode.
params = [
    SamplingParams(ignore_eos=True, max_tokens=4 * n, **way) for n, way in enumerate(ways, 1)
]
llm.generate([[n] * (4 + 5 * n) for n in range(4)], params)
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


def test_no_graph_and_no_way_of_sampling_starts_a_compiler(llama: Compiled) -> None:
    """The fault: a graph or the sampling behind it is compiled when a request first needs it."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN_EVERY_GRAPH, str(llama.artifact)],
        env={**os.environ, "PATH": "", "CXX": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    names, compilers = json.loads(ended.stdout)
    assert names == sorted(graph.name for graph in read_manifest(llama.artifact).graphs)
    assert compilers == []
