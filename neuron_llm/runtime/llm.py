"""Library use: `LLM("artifacts/x").generate(prompts, params)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.artifact import Artifact
from neuron_llm.runtime.engine_loading import load_engine
from neuron_llm.runtime.outputs import RequestOutput
from neuron_llm.runtime.sampling_params import SamplingParams

Prompt = str | Sequence[int]
Conversation = Sequence[Mapping[str, Any]]


class LLM:
    """A compiled model that generates.

    Args:
        artifact: a directory that `neuron-llm compile` wrote.

    Raises:
        ArtifactError: it cannot run here.

    Attributes:
        engine: what runs underneath.
    """

    def __init__(self, artifact: str | Path) -> None:
        self.engine = load_engine(Artifact.open(Path(artifact)))
        self._num_requests = 0

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Return the completion of each prompt, in order.

        Args:
            prompts: texts or lists of token ids; a single one is a list of one.
            sampling_params: one for all, or one per prompt; None for vLLM's defaults.

        Raises:
            RequestError: a prompt can never be run; none has been run then.
        """
        batch = [prompts] if _is_one_prompt(prompts) else list(prompts)
        token_ids = [self._encode(prompt) for prompt in batch]  # type: ignore[arg-type]
        return self._run(token_ids, _one_per_prompt(sampling_params, len(batch)))

    def chat(
        self, messages: Conversation, sampling_params: SamplingParams | None = None
    ) -> RequestOutput:
        """Return the reply to one conversation, through the model's chat template.

        Raises:
            RequestError: the model has no chat template, or the conversation can never be run.
        """
        token_ids = self.engine.tokenizer.encode_messages(messages)
        return self._run([token_ids], _one_per_prompt(sampling_params, 1))[0]

    def _encode(self, prompt: Prompt) -> list[int]:
        return (
            self.engine.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else list(prompt)
        )

    def _run(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[RequestOutput]:
        ids = self._add_all(prompts, params)
        finished: dict[str, RequestOutput] = {}
        try:
            while self.engine.has_unfinished_requests():
                results = (output.result for output in self.engine.step())
                finished.update((result.request_id, result) for result in results if result)
        finally:
            self.engine.abort_requests(i for i in ids if i not in finished)
        return [finished[request_id] for request_id in ids]

    def _add_all(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[str]:
        ids: list[str] = []
        try:
            for token_ids, one in zip(prompts, params, strict=True):
                request_id = str(self._num_requests)
                self._num_requests += 1
                self.engine.add_request(request_id, token_ids, one)
                ids.append(request_id)
        except RequestError:
            self.engine.abort_requests(ids)
            raise
        return ids


def _is_one_prompt(prompts: Prompt | Sequence[Prompt]) -> bool:
    return isinstance(prompts, str) or (
        len(prompts) > 0 and all(isinstance(token_id, int) for token_id in prompts)
    )


def _one_per_prompt(
    params: SamplingParams | Iterable[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * num_prompts
    if isinstance(params, SamplingParams):
        return [params] * num_prompts
    listed = list(params)
    if len(listed) != num_prompts:
        raise RequestError(
            f"{len(listed)} sampling parameters for {num_prompts} prompts",
            code="invalid_sampling",
            hint="give one for all prompts, or one per prompt",
        )
    return listed
