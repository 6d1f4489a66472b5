"""When a request ends by itself. Stop strings are text, and so not the scheduler's matter."""

from __future__ import annotations

from neuron_llm.scheduler.request import Request, RequestStatus


def check_stop(request: Request) -> bool:
    """Mark the request finished if its last token ends it; return whether it does.

    EOS comes first, then the stop tokens, then length: an EOS that is also the last allowed token
    ends the request with "stop". Before `min_tokens` only length can end it.
    """
    token_id = request.all_token_ids[-1]
    if token_id in request.ending_token_ids and request.num_output_tokens >= request.min_tokens:
        request.status = RequestStatus.FINISHED_STOPPED
        is_eos = token_id in request.eos_token_ids and not request.ignore_eos
        request.stop_reason = None if is_eos else token_id
        return True
    if request.num_tokens >= request.max_num_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False


def append_until_stop(request: Request, token_ids: list[int]) -> list[int]:
    """Append sampled tokens up to the one that ends the request; return those appended."""
    for count, token_id in enumerate(token_ids, start=1):
        if request.append_output_token_id(token_id) and check_stop(request):
            return token_ids[:count]
    return token_ids
