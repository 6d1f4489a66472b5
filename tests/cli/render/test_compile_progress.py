"""The progress of a compile, event by event."""

from __future__ import annotations

import time

import pytest

from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.cli.render.compile_progress import CompileProgress
from neuron_llm.cli.terminal.console import Console


def show(progress: CompileProgress, *events: BuildEvent) -> None:
    with progress:
        for event in events:
            progress.show(event)


def test_log_gets_a_line_for_every_start_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = CompileProgress(Console(), 3)
    show(
        progress,
        BuildEvent("prefill_t8", "cached"),
        BuildEvent("prefill_t16", "started"),
        BuildEvent("decode_b1_c64", "started"),
        BuildEvent("decode_b1_c64", "built", 9.87),
        BuildEvent("prefill_t16", "retried", 1.0),
        BuildEvent("prefill_t16", "started"),
        BuildEvent("prefill_t16", "built", 30.0),
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "cached prefill_t8  1/3",
        "compiling prefill_t16  1/3",
        "compiling decode_b1_c64  1/3",
        "built decode_b1_c64 in 9.9 s  2/3",
        "warning: prefill_t16 failed after 1.0 s and will be tried once more",
        "compiling prefill_t16  2/3",
        "built prefill_t16 in 30.0 s  3/3",
    ]
    assert progress.summary(42.13) == "compiled 2 graphs in 42.1 s, 1/3 cached"


def test_failed_graph_is_named_and_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    progress = CompileProgress(Console(), 2)
    show(
        progress,
        BuildEvent("prefill_t8", "started"),
        BuildEvent("prefill_t8", "failed", 2.0),
        BuildEvent("decode_b1_c64", "cached"),
    )
    assert capsys.readouterr().err.splitlines() == [
        "compiling prefill_t8  0/2",
        "failed prefill_t8 after 2.0 s",
        "cached decode_b1_c64  1/2",
    ]
    assert progress.summary(1.0) == "compiled 0 graphs in 1.0 s, 1/2 cached"


def test_putting_graphs_together_is_told_and_not_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = CompileProgress(Console(), 2)
    built = (BuildEvent("prefill_t8", "cached"), BuildEvent("decode_b1_c64", "cached"))
    show(progress, *built, BuildEvent("the model of all graphs", "joining"))
    assert progress.going_on.startswith("putting graphs together (")
    progress.show(BuildEvent("the model of all graphs", "joined", 7.0))
    assert progress.going_on == "verifying  0/2"
    assert capsys.readouterr().err.splitlines()[2:] == [
        "putting 2 graphs together",
        "put them together in 7.0 s",
    ]
    assert progress.summary(8.0) == "compiled 0 graphs in 8.0 s, 2/2 cached"


def test_one_graph_is_no_plural() -> None:
    progress = CompileProgress(Console(), 1)
    show(progress, BuildEvent("a", "started"), BuildEvent("a", "built", 1.0))
    assert progress.summary(2.0) == "compiled 1 graph in 2.0 s, 0/1 cached"


def test_quiet_leaves_progress_out(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.is_quiet = True
    show(CompileProgress(console, 1), BuildEvent("a", "started"), BuildEvent("a", "built", 1.0))
    assert capsys.readouterr().err == ""


def test_a_log_hears_again_and_again_what_is_going_on(capsys: pytest.CaptureFixture[str]) -> None:
    progress = CompileProgress(Console(), 3, heartbeat_s=0.05)
    with progress:
        progress.show(BuildEvent("prefill_t8", "cached"))
        progress.show(BuildEvent("prefill_t16", "started"))
        progress.show(BuildEvent("decode_b1_c64", "started"))
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("still compiling prefill_t16 (0 s), decode_b1_c64 (0 s)  1/3") >= 2


def test_what_is_going_on_is_told_with_the_time_it_has_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("neuron_llm.cli.render.compile_progress.time.monotonic", lambda: now)
    progress = CompileProgress(Console(), 2)
    assert progress.going_on == "compiling  0/2"
    progress.show(BuildEvent("a", "started"))
    now += 75
    assert progress.going_on == "compiling a (75 s)  0/2"
    progress.show(BuildEvent("a", "built", 75))
    progress.show(BuildEvent("b", "cached"))
    assert progress.going_on == "verifying  0/2"
    progress.show(BuildEvent("a", "verified", 1))
    assert progress.going_on == "verifying  1/2"
