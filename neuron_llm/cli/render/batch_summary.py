"""What a batch job came to: two short tables for people, one document for machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_llm.cli.render.padding_table import render_padding
from neuron_llm.cli.render.table import counted, render_table
from neuron_llm.quantities import shown_bytes
from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.run.padding_price import PaddingPrice

_LATENCIES = {
    "queue_ms": "queue",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2el_ms": "E2EL",
}
_STATISTICS = ("mean", "p50", "p90", "p99", "max")


def render_summary(
    metrics: Mapping[str, Any], account: PaddingAccount, price: PaddingPrice | None = None
) -> str:
    """Return the summary of a job.

    Args:
        metrics: `RunMetrics.to_json`.
        account: of its steps.
        price: of running only the largest graphs; None if the others ran too.
    """
    paragraphs = [_totals(metrics)]
    if metrics["num_completed"]:
        paragraphs.append(_latency_table(metrics))
    if account.total.num_uses:
        used = {bucket: c for bucket, c in account.by_bucket.items() if c.num_uses}
        paragraphs.append(render_padding(used, account.total))
        if price is not None:
            paragraphs.append(_price_line(price))
    return "\n\n".join(paragraphs)


def _totals(metrics: Mapping[str, Any]) -> str:
    num_requests = metrics["num_completed"] + metrics["num_failed"]
    lines = [
        f"{counted(num_requests, 'request')} in {metrics['duration_s']:.1f} s,"
        f" {counted(metrics['num_failed'], 'error')}",
        f"{counted(metrics['num_prompt_tokens'], 'prompt token')}"
        f" ({metrics['num_cached_tokens']} cached),"
        f" {counted(metrics['num_output_tokens'], 'output token')}",
    ]
    if metrics["num_completed"]:
        lines.append(
            f"{metrics['output_tokens_per_s']:.1f} output tokens/s,"
            f" {metrics['total_tokens_per_s']:.1f} tokens/s with prompts,"
            f" {metrics['requests_per_s']:.2f} requests/s"
        )
    if metrics.get("num_kv_copies"):
        lines.append(
            f"the KV cache moved between graphs {counted(metrics['num_kv_copies'], 'time')},"
            f" {shown_bytes(metrics['kv_copy_bytes'])} in all"
        )
    return "\n".join(lines)


def _price_line(price: PaddingPrice) -> str:
    return (
        f"reproducible: {counted(price.num_padded_tokens, 'token')} of padding;"
        f" the smallest graphs that fit would have {price.num_least_padded_tokens}"
    )


def _latency_table(metrics: Mapping[str, Any]) -> str:
    rows = [
        [label, *(_milliseconds(metrics[name][statistic]) for statistic in _STATISTICS)]
        for name, label in _LATENCIES.items()
    ]
    return render_table(["ms", *_STATISTICS], rows)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
