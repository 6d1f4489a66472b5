"""When a request ends by itself. Stop strings are text, and so not the scheduler's matter."""

from __future__ import annotations

from neuron_llm.scheduler.request import Request, RequestStatus


def check_stop(request: Request, max_model_len: int) -> bool:
    """Mark the request finished if its last token ends it; return whether it does.

    EOS comes first, then the stop tokens, then length: an EOS that is also the last allowed token
    ends the request with "stop". Before `min_tokens` only length can end it.
    """
    token_id = request.all_token_ids[-1]
    if request.num_output_tokens >= request.min_tokens:
        if token_id in request.eos_token_ids and not request.ignore_eos:
            request.status = RequestStatus.FINISHED_STOPPED
            return True
        if token_id in request.stop_token_ids:
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = token_id
            return True
    if request.num_tokens >= max_model_len or request.num_output_tokens >= request.max_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False
