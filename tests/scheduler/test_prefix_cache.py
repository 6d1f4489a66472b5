"""Prefix hits judged by the worker that checks every slot."""

from __future__ import annotations

import pytest
from judge import JudgeWorker, expected_output
from scheduler_factory import has_anything_to_say, make_config, make_request
from streams import BOTH_CLASSES

from neuron_llm.scheduler import NeuronScheduler, Request, RequestStatus

VOCAB_SIZE = 50
ABORTED = RequestStatus.FINISHED_ABORTED
EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)


class Session:
    """A scheduler and a judge that stay warm from one request to the next."""

    def __init__(self, scheduler_class: type[NeuronScheduler], **changes: object) -> None:
        config = make_config(**changes)
        self.scheduler = scheduler_class(config)
        self.worker = JudgeWorker(config, VOCAB_SIZE)
        self.num_prefill_steps = 0

    def run(self, *requests: Request) -> list[int]:
        """Run requests together; return how many tokens of each came from the cache."""
        self.num_prefill_steps = 0
        for request in requests:
            self.scheduler.add_request(request)
        while has_anything_to_say(self.scheduler):
            output = self.scheduler.schedule()
            self.num_prefill_steps += output.num_scheduled_tokens_padded != (
                output.num_scheduled_tokens
            ) or bool(output.scheduled_new_reqs)
            self.scheduler.update_from_output(output, self.worker.execute(output))
            self.scheduler.kv_cache_manager.check_integrity()
        for request in requests:
            answer, _, _ = expected_output(request, 64, VOCAB_SIZE)
            assert list(request.output_token_ids) == answer
        return [request.num_cached_tokens for request in requests]


@EACH_CLASS
def test_a_prompt_seen_before_is_recomputed_from_its_last_block(
    scheduler_class: type[NeuronScheduler],
) -> None:
    session = Session(scheduler_class)
    hits = [session.run(make_request("r", prompt=range(8))) for _ in range(3)]
    assert hits == [[0], [4], [4]]


@EACH_CLASS
@pytest.mark.parametrize("max_num_seqs", [1, 2, 4])
def test_equal_prompts_together_equal_one_alone(
    scheduler_class: type[NeuronScheduler], max_num_seqs: int
) -> None:
    session = Session(scheduler_class, max_num_seqs=max_num_seqs)
    requests = [make_request(f"r{i}", prompt=range(21)) for i in range(4)]
    assert session.run(*requests) == [0, 20, 20, 20]


@EACH_CLASS
@pytest.mark.parametrize("prompt_len", [1, 3, 4, 5, 8, 16, 17, 33, 60])
def test_a_warm_run_equals_the_cold_one(
    scheduler_class: type[NeuronScheduler], prompt_len: int
) -> None:
    session = Session(scheduler_class)
    hits = [session.run(make_request("r", prompt_len)) for _ in range(2)]
    assert hits == [[0], [(prompt_len - 1) // 4 * 4]]


def test_cached_chunks_are_not_scheduled() -> None:
    session = Session(NeuronScheduler)
    session.run(make_request("a", prompt=range(29)))
    assert session.run(make_request("b", prompt=range(32))) == [28]
    assert session.num_prefill_steps == 1


def test_an_answer_becomes_a_prefix_of_the_next_turn() -> None:
    session = Session(NeuronScheduler)
    first = make_request("a", prompt=range(10), max_tokens=15)
    session.run(first)
    # The last token was sampled and never computed, so 24 of 25 can be there.
    assert session.run(make_request("b", prompt=[*first.all_token_ids, 1, 2])) == [24]


def test_evicted_prefixes_are_computed_again() -> None:
    session = Session(NeuronScheduler, num_blocks=17)
    assert session.run(make_request("a", prompt=range(40))) == [0]
    assert session.run(make_request("b", prompt=range(100, 160))) == [0]
    assert session.run(make_request("a", prompt=range(40))) == [0]


def test_salts_keep_equal_prompts_apart() -> None:
    session = Session(NeuronScheduler)
    hits = [
        session.run(make_request("r", prompt=range(9), cache_salt=salt))
        for salt in ("salt1", "salt1", "salt2", None, None)
    ]
    assert hits == [[0], [8], [0], [0], [8]]


def test_with_caching_off_nothing_is_hit() -> None:
    session = Session(NeuronScheduler, enable_prefix_caching=False)
    assert [session.run(make_request("r", prompt=range(9))) for _ in range(2)] == [[0], [0]]


def test_two_schedulers_share_nothing() -> None:
    first, second = Session(NeuronScheduler), Session(NeuronScheduler)
    first.run(make_request("r", prompt=range(9)))
    assert second.run(make_request("r", prompt=range(9))) == [0]


def test_an_aborted_prompt_leaves_only_blocks_that_were_written() -> None:
    session = Session(NeuronScheduler)
    session.scheduler.add_request(make_request("a", prompt=range(40)))
    output = session.scheduler.schedule()
    session.scheduler.update_from_output(output, session.worker.execute(output))
    session.scheduler.finish_requests("a", status=ABORTED)
    assert session.run(make_request("b", prompt=range(40))) == [16]


@EACH_CLASS
@pytest.mark.parametrize(("max_shared_tokens", "num_hits"), [(0, 0), (7, 4), (8, 8), (15, 12)])
def test_only_so_many_tokens_are_shared(
    scheduler_class: type[NeuronScheduler], max_shared_tokens: int, num_hits: int
) -> None:
    session = Session(scheduler_class)
    first = make_request("a", prompt=range(10), max_tokens=25, max_shared_tokens=max_shared_tokens)
    session.run(first)
    again = [*first.all_token_ids, 1, 2]
    assert session.run(make_request("b", prompt=again)) == [num_hits]
    # What the second has computed is not held back.
    assert session.run(make_request("c", prompt=again)) == [36]


def test_a_request_whose_tokens_are_not_shared_asks_for_blocks_only_when_it_needs_one() -> None:
    scheduler = NeuronScheduler(make_config())
    request = make_request("a", prompt=range(5), max_tokens=40, max_shared_tokens=5)
    scheduler.add_request(request)
    scheduler.schedule()
    assert request.num_settled_tokens == 9, "its two blocks hold eight tokens"
