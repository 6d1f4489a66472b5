"""A conversation with a loaded model, one streamed reply at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.text.messages import Message

_TOO_LONG = frozenset({"prompt_too_long", "kv_too_small"})


class ChatSession:
    """Keeps a conversation and asks the model for the next reply.

    Through a chat template the conversation is a list of messages. Raw, it is one text that the
    model continues: each turn begins a new line of it.

    Args:
        engine: with no other requests in it while a reply is made.
        params: for every reply.
        template: a Jinja chat template that replaces the model's.
        raw: continue plain text, without a template.

    Raises:
        RequestError: there is no template (code `no_chat_template`), the one given is wrong, or
            `params` asks for several replies (code `invalid_sampling`) or for what the artifact's
            graphs do not give (code `needs_logits`).
    """

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        *,
        template: str | None = None,
        raw: bool = False,
    ) -> None:
        if params.n > 1:
            raise RequestError(
                f"`n` is {params.n}, but a chat goes on from one reply", code="invalid_sampling"
            )
        engine.runner.sampler.check(params)
        self._engine = engine
        self._params = params
        self._template = template
        self._raw = raw
        self._messages: list[Message] = []
        self._text = ""
        self._num_requests = 0
        # A template that is missing or wrong shows itself before the first turn.
        self._encode("Hello")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, oldest first, replies included; empty when raw."""
        return tuple(self._messages)

    def reset(self) -> None:
        """Forget the conversation."""
        self._messages.clear()
        self._text = ""

    def reply(self, text: str) -> Generator[str]:
        """Yield the reply to `text` piece by piece, one piece per step, many of them empty.

        Between two pieces the reply can be stopped by closing the iterator: the request ends, its
        KV blocks are free, and the pieces so far stay in the conversation as the reply. A turn
        without any text of reply is not kept.

        Raises:
            RequestError: the conversation does not fit into the context (codes `prompt_too_long`
                and `kv_too_small`), the template refuses it, or the model's logits are no numbers
                or its graph's token does not exist (code `invalid_logits`). It is as it was before
                then.
        """
        request_id = f"chat-{self._num_requests}"
        self._num_requests += 1
        try:
            self._engine.add_request(request_id, self._encode(text), self._params)
        except RequestError as error:
            if error.code in _TOO_LONG:
                raise _with_way_out(error) from error
            raise
        pieces: list[str] = []
        is_failed = False
        try:
            for piece in self._generate(request_id):
                pieces.append(piece)
                yield piece
        except RequestError:
            is_failed = True
            raise
        finally:
            self._engine.abort_requests([request_id])
            reply = "".join(pieces)
            if reply and not is_failed:
                self._remember(text, reply)

    def _generate(self, request_id: str) -> Iterator[str]:
        is_finished = False
        while not is_finished:
            piece = ""
            for output in self._engine.step():
                assert output.request_id == request_id, "the engine serves the chat alone"
                piece += output.new_text
                if output.result is not None:
                    is_finished = True
                    if output.result.error is not None:
                        raise RequestError(output.result.error, code="invalid_logits")
            yield piece

    def _encode(self, text: str) -> list[int]:
        if self._raw:
            return self._engine.tokenizer.encode_prompt(self._continued(text))
        messages = [*self._messages, {"role": "user", "content": text}]
        return self._engine.tokenizer.encode_messages(messages, chat_template=self._template)

    def _continued(self, text: str) -> str:
        return f"{self._text}\n{text}" if self._text else text

    def _remember(self, text: str, reply: str) -> None:
        if self._raw:
            self._text = self._continued(text) + reply
        else:
            self._messages.append({"role": "user", "content": text})
            self._messages.append({"role": "assistant", "content": reply})


def _with_way_out(error: RequestError) -> RequestError:
    return RequestError(
        f"the conversation is too long: {error.message}",
        code=error.code,
        hint="send less, or begin anew with `/reset`",
    )
