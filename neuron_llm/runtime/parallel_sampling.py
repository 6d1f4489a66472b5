"""Several completions of one prompt: sequences of their own inside, one request outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from neuron_llm.runtime.outputs import RequestOutput, RequestTimes, StepOutput


@dataclass
class _Parent:
    """A request for several completions, with the results of those that have ended."""

    sequence_ids: tuple[str, ...]
    results: dict[int, RequestOutput] = field(default_factory=dict)


class ParallelSampling:
    """Knows which sequences are completions of which request.

    A request for one completion is a sequence itself and is not kept here.
    """

    def __init__(self) -> None:
        self._parents: dict[str, _Parent] = {}
        self._places: dict[str, tuple[str, int]] = {}

    def __contains__(self, request_id: str) -> bool:
        """Whether a request for several completions has this id and has not ended."""
        return request_id in self._parents

    @staticmethod
    def sequence_ids(request_id: str, n: int) -> tuple[str, ...]:
        """Return the ids of a request's completions, by index; vLLM's form."""
        return (request_id,) if n == 1 else tuple(f"{i}_{request_id}" for i in range(n))

    def begin(self, request_id: str, sequence_ids: Sequence[str]) -> None:
        """Take in a request whose completions have been started."""
        if len(sequence_ids) > 1:
            self._parents[request_id] = _Parent(tuple(sequence_ids))
            for index, sequence_id in enumerate(sequence_ids):
                self._places[sequence_id] = (request_id, index)

    def clear(self) -> None:
        """Forget every request."""
        self._parents.clear()
        self._places.clear()

    def expand(self, request_ids: Iterable[str]) -> list[str]:
        """Return the ids of the requests' completions, those that have ended included."""
        expanded: list[str] = []
        for request_id in request_ids:
            parent = self._parents.get(request_id)
            expanded.extend((request_id,) if parent is None else parent.sequence_ids)
        return expanded

    def outside(self, output: StepOutput) -> StepOutput:
        """Return a sequence's output as that of its request, with a result if it was the last."""
        place = self._places.get(output.request_id)
        if place is None:
            return output
        request_id, index = place
        result = None
        if output.result is not None:
            del self._places[output.request_id]
            result = self._take(request_id, index, output.result)
        return StepOutput(request_id, output.new_text, result, index)

    def _take(self, request_id: str, index: int, result: RequestOutput) -> RequestOutput | None:
        parent = self._parents[request_id]
        parent.results[index] = result
        if len(parent.results) < len(parent.sequence_ids):
            return None
        del self._parents[request_id]
        return _joined(request_id, [parent.results[i] for i in range(len(parent.sequence_ids))])


def _joined(request_id: str, results: Sequence[RequestOutput]) -> RequestOutput:
    first = results[0]
    token_times = sorted(at for result in results for at in result.times.tokens)
    return RequestOutput(
        request_id=request_id,
        prompt_token_ids=first.prompt_token_ids,
        outputs=tuple(replace(r.outputs[0], index=index) for index, r in enumerate(results)),
        num_cached_tokens=first.num_cached_tokens,
        times=RequestTimes(first.times.arrival, tuple(token_times)),
        error=next((result.error for result in results if result.error is not None), None),
        prompt_logprobs=first.prompt_logprobs,
    )
