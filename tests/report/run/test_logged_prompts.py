from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from step_factory import decode_step, prefill_step

from neuron_llm.report.run.logged_prompts import LoggedPrompts
from neuron_llm.scheduler.step_record import StepRecord


def chunks_of(num_tokens: int, num_cached: int, size: int) -> list[StepRecord]:
    """Return the prefill steps of a prompt."""
    steps, done = [], num_cached
    while done < num_tokens:
        chunk = min(size, num_tokens - done)
        cached = num_cached if done == num_cached else 0
        step = prefill_step(chunk, size=size, cached=cached)
        steps.append(replace(step, num_context_tokens=done + chunk))
        done += chunk
    return steps


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), max_size=8))
def test_prompts_are_those_of_the_run(prompts: list[tuple[int, int]]) -> None:
    logged = LoggedPrompts()
    for computed, cached in prompts:
        for step in chunks_of(computed + cached, cached, 16):
            logged.add(step)
            # A decode between two chunks belongs to other requests.
            logged.add(decode_step(4, 5, size=2, room=128))
    assert logged.work.num_computed_tokens == [computed for computed, _ in prompts]
    assert logged.work.num_cached_tokens == [cached for _, cached in prompts]
    assert [request.prompt_tokens for request in logged.trace().requests] == [
        computed + cached for computed, cached in prompts
    ]


def test_outputs_are_known_on_average() -> None:
    steps = [prefill_step(5, size=8), prefill_step(6, size=8)]
    steps += [decode_step(6, 7, size=2, room=128)] * 3
    logged = LoggedPrompts(steps)
    assert (logged.num_decoded_tokens, logged.mean_output_tokens) == (6, 4)
    assert LoggedPrompts().mean_output_tokens == 1
