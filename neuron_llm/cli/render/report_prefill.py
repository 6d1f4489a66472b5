"""What is recommended of prefill buckets and chunk size."""

from __future__ import annotations

from neuron_llm.cli.render.report_lines import labelled, number, percent, section, sizes
from neuron_llm.cli.render.table import counted, render_table
from neuron_llm.report.advice.bucket_comparison import BucketComparison
from neuron_llm.report.advice.chunk_size import ChunkSizes
from neuron_llm.report.advice.held_out import HeldOutScores
from neuron_llm.report.advice.prefill_advice import PrefillAdvice
from neuron_llm.report.advice.prefill_score import PrefillScore


def render_prefill(advice: PrefillAdvice) -> str:
    """Return the recommended buckets beside the configured and the default ones."""
    current, default, best = advice.current, advice.default, advice.recommended
    rows = [
        _row("current", current),
        _row("default", default),
        _row("recommended", best),
        _row("best of current's count", advice.equal_to_current.candidate),
        _row("best of default's count", advice.equal_to_default.candidate),
    ]
    header = ["prefill buckets", "graphs", "steps", "padded", "waste"]
    limits = advice.limits
    return section(
        f"recommendation: at most {counted(limits.max_graphs, 'prefill graph')},"
        f" granularity {limits.granularity}",
        render_table(header, rows),
        "",
        labelled("current", sizes(current.buckets)),
        labelled("default", sizes(default.buckets)),
        labelled("recommended", sizes(best.buckets)),
        "",
        labelled("vs current", _words(advice.against_current)),
        labelled("vs default", _words(advice.against_default)),
        *([labelled("held out", _held_out(advice.held_out))] if advice.held_out else []),
    )


def _row(name: str, score: PrefillScore) -> list[str]:
    counts = (score.num_graphs, score.total.num_uses, score.num_padded_tokens)
    return [name, *map(str, counts), percent(score.padding_ratio)]


def _words(comparison: BucketComparison) -> str:
    saved = comparison.saved_share
    if saved is None:
        return f"{comparison.description}; no saving"
    return f"{comparison.description}; saves {saved:.1%} of all computed tokens"


def _held_out(scores: HeldOutScores) -> str:
    return (
        f"fitted on the first {scores.num_fitted} prompts: {percent(scores.fitted.padding_ratio)}"
        f" there, {percent(scores.held_out.padding_ratio)} on the other {scores.num_held_out}"
        f" (their own best: {percent(scores.held_out_best.padding_ratio)}, default list:"
        f" {percent(scores.held_out_default.padding_ratio)})"
    )


def render_curve(advice: PrefillAdvice) -> str:
    """Return the least padding for each number of graphs."""
    curve, knee = advice.curve, advice.curve.knee
    rows = [
        [
            str(point.num_graphs),
            str(point.num_padded_tokens),
            percent(point.padding_ratio),
            _mark(point, advice),
        ]
        for point in curve.points
    ]
    return section(
        "trade-off: least padding of each number of prefill graphs",
        render_table(["graphs", "padded", "waste", ""], rows),
        "",
        labelled("knee", f"{counted(knee.num_graphs, 'graph')}: {sizes(knee.buckets)}"),
    )


def _mark(point: PrefillScore, advice: PrefillAdvice) -> str:
    marks = {"recommended": advice.recommended, "knee": advice.curve.knee}
    return ", ".join(name for name, marked in marks.items() if marked is point)


def render_chunk_sizes(chunk_sizes: ChunkSizes, current: int) -> str:
    """Return what other chunk sizes would cost."""
    price, best, unit = chunk_sizes.price, chunk_sizes.best, chunk_sizes.price.unit
    rows = [
        [
            str(option.max_chunk_tokens),
            str(option.score.num_graphs),
            str(option.score.total.num_uses),
            str(option.num_chunked_prompts),
            percent(option.score.padding_ratio),
            number(option.cost),
        ]
        for option in chunk_sizes.options
    ]
    header = ["chunk size", "graphs", "steps", "in chunks", "waste", f"cost ({unit})"]
    verdict = f"{best.max_chunk_tokens} costs least"
    if best.max_chunk_tokens == current:
        verdict += ", as configured"
    else:
        verdict += (
            f"; recommend buckets for it with --max-num-batched-tokens {best.max_chunk_tokens}."
            " What a long step does to requests that wait for their next token is not in the cost:"
            " compare with --simulate"
        )
    return section(
        "chunk size (max_num_batched_tokens)",
        render_table(header, rows),
        "",
        labelled("price", f"{number(price.step)} {unit} a step, {price.token:.3g} a token"),
        labelled("cheapest", verdict),
    )
