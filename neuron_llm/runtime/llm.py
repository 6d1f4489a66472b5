"""Library use: `LLM("artifacts/x").generate(prompts, params)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from neuron_llm.artifact.arguments import as_path
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.engine import ignore_step
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.runtime.generation_defaults import generation_defaults
from neuron_llm.runtime.llm_prompts import Prompts, parse_prompts
from neuron_llm.runtime.run_log import RunLogWriter, new_run_log
from neuron_llm.runtime.sampling.greedy_only import default_fields
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.text.messages import Message, parse_messages


class LLM:
    """A compiled model that generates.

    With `state_dir` it keeps a log of its steps, which `bucket-report` reads. The log replaces that
    of the artifact's last run when the model is closed, by `close` or at the end of a `with` block
    that ends well.

    Args:
        artifact: a directory that `neuron-llm compile` wrote.
        self_test: see `EngineOptions`.
        reproducible: see `EngineOptions`.
        state_dir: where the log is kept; the command line's is `.neuron-llm`. None keeps none.

    Raises:
        ArtifactError: it cannot run here, there is not the memory for it, or its self-test fails.

    Attributes:
        engine: what runs underneath.
        run_log: of this run; its `failure` says why there will be none. None without `state_dir`.
    """

    def __init__(
        self,
        artifact: str | Path,
        *,
        self_test: bool = True,
        reproducible: bool = False,
        state_dir: str | Path | None = None,
    ) -> None:
        options = EngineOptions(self_test=self_test, reproducible=reproducible)
        opened = Artifact.open(as_path(artifact, "artifact"))
        self.run_log: RunLogWriter | None = None
        if state_dir is not None:
            self.run_log = new_run_log(opened.manifest.artifact_id, as_path(state_dir, "state_dir"))
        on_step = ignore_step if self.run_log is None else self.run_log.write
        self.engine = load_engine(opened, options, on_step=on_step)
        self._num_requests = 0
        # Only now: what cannot be loaded leaves no log that somebody must remove.
        if self.run_log is not None:
            self.run_log.__enter__()

    def __enter__(self) -> Self:
        """Return the model itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the log; after an exception it is dropped."""
        if self.run_log is not None:
            self.run_log.__exit__(exc_type, exc, traceback)

    def close(self) -> None:
        """Put the log of the steps so far in place; what runs later is in none."""
        self.__exit__(None, None, None)

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's `generation_config.json` says; vLLM's defaults for the rest.

        Raises:
            ArtifactError: the file is damaged.
        """
        artifact = self.engine.artifact
        return SamplingParams.merged(generation_defaults(artifact.directory, artifact.manifest))

    def generate(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Return what each prompt came to, in order: `n` completions, by index.

        Args:
            prompts: texts, lists of token ids, or vLLM's `{"prompt": …}` and
                `{"prompt_token_ids": …}`; a single one is a list of one.
            sampling_params: one for all, or one per prompt; None for vLLM's defaults, and for
                temperature 0 where graphs give tokens instead of logits.

        Raises:
            RequestError: a prompt is none (code `invalid_prompt`) or can never be run, or the
                sampling parameters are none (code `invalid_sampling`); nothing has been run then.
        """
        batch = parse_prompts(prompts)
        params = self._one_per_prompt(sampling_params, len(batch))
        return self._run([self._encode(prompt) for prompt in batch], params)

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        chat_template: str | None = None,
    ) -> RequestOutput:
        """Return the reply to one conversation, through a chat template.

        Args:
            messages: the conversation, oldest first.
            sampling_params: see `generate`.
            chat_template: a Jinja template that replaces the model's.

        Raises:
            RequestError: the model has no chat template, or the messages are none (code
                `invalid_messages`) or can never be run.
        """
        params = self._one_per_prompt(sampling_params, 1)
        conversation = parse_messages(list(messages) if isinstance(messages, tuple) else messages)
        encode = self.engine.tokenizer.encode_messages
        return self._run([encode(conversation, chat_template=chat_template)], params)[0]

    def _one_per_prompt(self, params: object, num_prompts: int) -> list[SamplingParams]:
        if params is None:
            settings = self.engine.artifact.manifest.settings
            fields = default_fields(samples_greedily=settings.samples_greedily)
            params = SamplingParams.merged(fields)
        return _one_per_prompt(params, num_prompts)

    def _encode(self, prompt: str | list[int]) -> list[int]:
        return self.engine.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else prompt

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


def _one_per_prompt(params: object, num_prompts: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * num_prompts
    items = list(params) if isinstance(params, Iterable) else [params]
    listed = [one for one in items if isinstance(one, SamplingParams)]
    if len(listed) < len(items):
        other = next(one for one in items if not isinstance(one, SamplingParams))
        raise RequestError(
            f"the sampling parameters are of type `{type(other).__name__}`, not `SamplingParams`",
            code="invalid_sampling",
            hint="for example `SamplingParams(temperature=0, max_tokens=64)`",
        )
    if len(listed) != num_prompts:
        raise RequestError(
            f"{len(listed)} sampling parameters for {num_prompts} prompts",
            code="invalid_sampling",
            hint="give one for all prompts, or one per prompt",
        )
    return listed
