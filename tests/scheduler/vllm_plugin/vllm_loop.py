"""A few lines of engine around one of vLLM's schedulers."""

from __future__ import annotations

from typing import Any

from scheduler_factory import make_config, make_request
from vllm_factory import make_vllm_output, make_vllm_request, make_vllm_scheduler, requests

PLAIN_TOKEN_ID = 7


class Loop:
    """Adds prompts by length and steps; `changes` are limits of ours, `vllm` those of vLLM."""

    def __init__(
        self, scheduler_class: Any, vllm: dict[str, Any] | None = None, **changes: Any
    ) -> None:
        self.config = make_config(**changes)
        self.scheduler = make_vllm_scheduler(scheduler_class, self.config, **(vllm or {}))
        self.tokens: dict[str, list[int]] = {}
        self.finish_reasons: dict[str, str] = {}

    def add(self, request_id: str, prompt_len: int = 4, max_tokens: int = 8, **fields: Any) -> Any:
        ours = make_request(request_id, prompt_len, max_tokens=max_tokens)
        request = make_vllm_request(ours, self.config.block_size, **fields)
        self.scheduler.add_request(request)
        return request

    def step(self) -> dict[str, int]:
        """Run one step; return its tokens by request."""
        output = self.scheduler.schedule()
        self.finish(output)
        counts: dict[str, int] = output.num_scheduled_tokens
        return counts

    def finish(self, output: Any) -> None:
        cached = output.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        starts |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        sampled = []
        for req_id, num_tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests.get(req_id)
            is_partial = request and starts[req_id] + num_tokens < request.num_tokens
            sampled.append([] if is_partial else [PLAIN_TOKEN_ID])
        result = make_vllm_output(list(output.num_scheduled_tokens), sampled)
        for outputs in self.scheduler.update_from_output(output, result).values():
            for core_output in outputs.outputs:
                tokens = self.tokens.setdefault(core_output.request_id, [])
                tokens += core_output.new_token_ids
                if core_output.finish_reason is not None:
                    self.finish_reasons[core_output.request_id] = str(core_output.finish_reason)

    def steps(self, count: int) -> list[dict[str, int]]:
        return [self.step() for _ in range(count)]

    def run_to_end(self) -> list[dict[str, int]]:
        steps = []
        while self.scheduler.has_requests():
            steps.append(self.step())
            assert len(steps) < 1000, "hang"
        return steps

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, requests.RequestStatus.FINISHED_ABORTED)

    @property
    def running(self) -> list[str]:
        return [request.request_id for request in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]

    @property
    def num_free_blocks(self) -> int:
        count: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return count
