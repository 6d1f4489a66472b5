"""Several completions of one prompt: sequences of their own inside, one request outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.outputs import RequestOutput, RequestTimes, StepOutput

_INDEXED = re.compile(r"\d+_")


@dataclass
class _Parent:
    """A request with the results of those of its completions that have ended."""

    sequence_ids: tuple[str, ...]
    results: dict[int, RequestOutput] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """Which completion of which request a sequence is."""

    request_id: str
    index: int


class ParallelSampling:
    """Knows which sequences are completions of which request."""

    def __init__(self) -> None:
        self._parents: dict[str, _Parent] = {}
        self._places: dict[str, _Place] = {}

    @staticmethod
    def sequence_ids(request_id: str, n: int) -> tuple[str, ...]:
        """Return the ids of a request's completions, by index; vLLM's form, `0_r` and `1_r`.

        No two requests share one: a number before the first `_` is always an index, since a single
        completion has its request's own id only if that does not begin so.
        """
        if n == 1 and not _INDEXED.match(request_id):
            return (request_id,)
        return tuple(f"{index}_{request_id}" for index in range(n))

    def check_is_new(self, request_id: str) -> None:
        """Refuse the id of a request that has not ended.

        Raises:
            RequestError: with the code `duplicate_request_id`.
        """
        if request_id in self._parents:
            raise RequestError(
                f"an unfinished request has the id `{request_id}`",
                code="duplicate_request_id",
                hint="give every request an id of its own",
            )

    def begin(self, request_id: str, sequence_ids: Sequence[str]) -> None:
        """Take in a request whose completions have been started."""
        self._parents[request_id] = _Parent(tuple(sequence_ids))
        for index, sequence_id in enumerate(sequence_ids):
            self._places[sequence_id] = _Place(request_id, index)

    def clear(self) -> None:
        """Forget every request."""
        self._parents.clear()
        self._places.clear()

    def expand(self, request_ids: Iterable[str]) -> list[str]:
        """Return the ids of the requests' completions, also of those that have ended.

        Ids of no request are left out.
        """
        parents = (self._parents.get(request_id) for request_id in request_ids)
        return [i for parent in parents if parent is not None for i in parent.sequence_ids]

    def outside(self, output: StepOutput) -> StepOutput:
        """Return a sequence's output as that of its request, with a result if it was the last."""
        place, result = self._places[output.request_id], None
        if output.result is not None:
            del self._places[output.request_id]
            result = self._take(place, output.result)
        return StepOutput(place.request_id, output.new_text, result, place.index)

    def _take(self, place: _Place, result: RequestOutput) -> RequestOutput | None:
        parent = self._parents[place.request_id]
        parent.results[place.index] = result
        if len(parent.results) < len(parent.sequence_ids):
            return None
        del self._parents[place.request_id]
        return _joined(
            place.request_id, [parent.results[i] for i in range(len(parent.sequence_ids))]
        )


def _joined(request_id: str, results: Sequence[RequestOutput]) -> RequestOutput:
    first = results[0]
    starts = [r.times.first_scheduled for r in results if r.times.first_scheduled is not None]
    times = RequestTimes(
        arrival=first.times.arrival,
        tokens=tuple(sorted(at for result in results for at in result.times.tokens)),
        first_scheduled=min(starts, default=None),
    )
    return RequestOutput(
        request_id=request_id,
        prompt_token_ids=first.prompt_token_ids,
        outputs=tuple(replace(r.outputs[0], index=index) for index, r in enumerate(results)),
        num_cached_tokens=first.num_cached_tokens,
        times=times,
        error=next((result.error for result in results if result.error is not None), None),
        prompt_logprobs=first.prompt_logprobs,
    )
