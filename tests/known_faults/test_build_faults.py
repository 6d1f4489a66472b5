"""Faults of builds that fail: causes that nobody hears of, and graphs that are lost with them.

What is imported here is imported in every process that builds, so it should be little.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from neuron_llm.backends.build.builds import GraphBuilder, requested_graphs
from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.failure import GraphBuildError
from neuron_llm.backends.build.files import write_description
from neuron_llm.backends.build.pool import BuildTask, build_all
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.protocol import BuildEvent, BuildRequest
from neuron_llm.scheduler.buckets import DecodeBucket


def _be_killed_while_building(root: str) -> None:
    with GraphCache(Path(root)).new_entry("graph") as directory:
        (directory / "graph.so").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_compiler_that_is_killed_is_explained_and_poisons_no_cache(tmp_path: Path) -> None:
    """The fault: the kernel ends the compiler, nothing says so, and half a graph stays."""
    task = BuildTask("prefill_t8", _be_killed_while_building, (str(tmp_path),), tmp_path / "log")
    with pytest.raises(GraphBuildError) as caught:
        build_all([task], num_jobs=1, preload=[], on_event=lambda event: None)
    assert "prefill_t8: the compiler was killed, probably for want of host memory" in str(
        caught.value
    )
    assert "`--jobs 1`" in str(caught.value.hint)
    cache = GraphCache(tmp_path)
    assert cache.graph_directory("graph") is None
    assert list((tmp_path / "tmp").iterdir()) == []


def _build_unless_broken(spec: GraphSpec, key: str, root: Path, broken: Path) -> None:
    if spec.bucket.name == broken.read_text():
        sys.exit(1)
    cache = GraphCache(root)
    with cache.new_entry(key) as directory:
        write_description(directory, inputs=(), constants=(), compile_seconds=0.1)
    cache.link(key, key)


def test_after_a_failure_only_the_graph_that_failed_is_built(tmp_path: Path) -> None:
    """The fault: one of many builds fails, all is lost, and the next compile begins anew."""
    broken = tmp_path / "broken"
    specs = tuple(GraphSpec(DecodeBucket(rows, 64), {}, "float32", 64, 4, 65) for rows in (1, 2, 4))
    builder = GraphBuilder(
        build=_build_unless_broken, target=broken, preload="json", prepare=lambda: None
    )
    events: list[BuildEvent] = []
    build_request = BuildRequest(specs, tmp_path / "cache", num_jobs=1, on_event=events.append)
    keys = ["one", "two", "four"]
    broken.write_text("decode_b1_c64")
    with pytest.raises(GraphBuildError, match="1 of 3 graphs did not compile: decode_b1_c64: "):
        requested_graphs(build_request, keys, builder)
    events.clear()
    broken.write_text("")
    assert [graph.graph_key for graph in requested_graphs(build_request, keys, builder)] == keys
    assert {event.graph: event.status for event in events} == {
        "decode_b1_c64": "built", "decode_b2_c64": "cached", "decode_b4_c64": "cached",
    }  # fmt: skip
