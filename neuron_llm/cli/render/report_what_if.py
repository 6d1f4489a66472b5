"""Simulated configurations side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuron_llm.cli.render.report_lines import labelled, number, percent, section, sizes
from neuron_llm.cli.render.table import counted, render_table
from neuron_llm.report.simulate.simulation import Simulation
from neuron_llm.report.what_if import WhatIf

_Document = dict[str, Any]
_ROWS: tuple[tuple[str, Callable[[_Document], float | None]], ...] = (
    ("graphs", lambda d: d["num_graphs"]),
    *(
        (f"{name} {which} ms", lambda d, n=name, w=which: d[f"{n.lower()}_ms"][w])
        for name in ("TTFT", "TPOT", "ITL", "E2EL", "queue")
        for which in ("p50", "p90", "p99")
    ),
    ("longest stall ms", lambda d: (d["longest_stall"] or {"duration_ms": 0.0})["duration_ms"]),
    ("output tokens/s", lambda d: d["output_tokens_per_s"]),
    ("requests/s", lambda d: d["requests_per_s"]),
    ("duration s", lambda d: d["duration_s"]),
    ("graphs' time s", lambda d: d["busy_s"]),
    ("KV blocks, mean", lambda d: d["mean_used_kv_blocks"]),
    ("KV blocks, most", lambda d: d["max_used_kv_blocks"]),
    ("KV blocks, all", lambda d: d["num_kv_blocks"]),
    ("rows of a decode", lambda d: d["occupancy"]["mean_num_seqs"]),
)


def render_what_if(what_if: WhatIf, timing: str) -> str:
    """Return the table of simulations, and the decode graphs found from them."""
    documents = [simulation.to_json() for simulation in what_if.simulations]
    rows = [[name, *(_cell(measure(each)) for each in documents)] for name, measure in _ROWS]
    header = ["simulated", *(each["name"] for each in documents)]
    waste = [percent(s.account.total.padding_ratio) for s in what_if.simulations]
    context = [percent(s.account.total.context_padding_ratio) for s in what_if.simulations]
    rows += [["padding", *waste], ["context padding", *context]]
    notes = [labelled("note", text) for text in _notes(what_if.current)]
    return section(
        "simulation",
        render_table(header, rows),
        "",
        labelled("step times", timing),
        *notes,
        labelled("verdict", _verdict(what_if)),
        *_decode_lines(what_if),
    )


def _cell(value: float | None) -> str:
    return str(value) if isinstance(value, int) else number(value)


def _verdict(what_if: WhatIf) -> str:
    saved = what_if.saved_share
    if saved is None:
        return "the recommended graphs take no less time than the current ones; no saving"
    return f"the recommended graphs take {saved:.1%} less time than the current ones"


def _decode_lines(what_if: WhatIf) -> list[str]:
    choice, default = what_if.decode_choice, what_if.decode.default
    words = (
        f"{counted(choice.num_graphs, 'graph')}, {number(choice.mean_step_ms)} ms a step"
        f" (default: {default.num_graphs}, {number(default.mean_step_ms)} ms)"
    )
    if not what_if.is_decode_advised:
        words += "; not advised: simulated with them, the graphs take no less time"
    found = "" if what_if.decode.is_exact else " (searched in steps)"
    return [
        labelled("decodes", f"num_seqs_buckets: {sizes(choice.num_seqs_buckets)}"),
        labelled(
            "",
            f"decode_context_length_buckets: {sizes(choice.decode_context_length_buckets)}{found}",
        ),
        labelled("", words),
    ]


def _notes(current: Simulation) -> list[str]:
    notes = []
    if current.num_assumed_outputs:
        notes.append(f"the output of {counted(current.num_assumed_outputs, 'request')} is assumed")
    if current.refused:
        first = current.refused[0]
        notes.append(
            f"{counted(len(current.refused), 'request')} could never run, first: line {first.line},"
            f" {first.reason}"
        )
    if current.num_cut_outputs:
        cut = counted(current.num_cut_outputs, "request")
        notes.append(f"`max_model_len` ends {cut} early")
    if current.estimated:
        names = ", ".join(bucket.name for bucket in current.estimated)
        notes.append(f"never measured, estimated from other graphs: {names}")
    return notes
