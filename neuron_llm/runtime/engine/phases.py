"""The phases of a step: schedule, prepare, execute, sample, update, publish.

Each takes what the one before it gave. `execute` and `sample` may be done in another thread, in the
order of the steps, while the phases before them are done for the next step.
"""

from __future__ import annotations

import torch

from neuron_llm.runtime.engine.live_requests import LiveRequests
from neuron_llm.runtime.engine.outputs import StepOutput
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import GraphCall, PreparedStep, SampledStep
from neuron_llm.runtime.sampling.logprobs import PromptScores
from neuron_llm.scheduler import EngineCoreOutput, NeuronScheduler, SchedulerOutput


class StepPhases:
    """The phases of one step.

    Args:
        scheduler: decides what the step computes.
        runner: runs its graph.
        requests: get its tokens.
    """

    def __init__(
        self, scheduler: NeuronScheduler, runner: ModelRunner, requests: LiveRequests
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._requests = requests

    def schedule(self) -> SchedulerOutput:
        """Decide which tokens of which requests are computed."""
        return self._scheduler.schedule()

    def prepare(self, scheduled: SchedulerOutput) -> PreparedStep | None:
        """Pick the bucket and build its padded inputs; None if there is nothing to compute."""
        return self._runner.prepare(scheduled)

    def execute(self, step: PreparedStep) -> torch.Tensor:
        """Run the step's graph, once the step before has been sampled; see `ModelRunner.run`.

        A prompt whose log probabilities are wanted is scored call by call: the next one overwrites
        the logits.
        """
        for call in step.calls:
            outputs = self.run(step, call)
            if step.prompt_scores is not None:
                outputs = self.score_prompt(step.prompt_scores, call, outputs)
        return outputs

    def run(self, step: PreparedStep, call: GraphCall) -> torch.Tensor:
        """Run one of the step's graphs."""
        return self._runner.run(step, call)

    def score_prompt(
        self, scores: PromptScores, call: GraphCall, logits: torch.Tensor
    ) -> torch.Tensor:
        """Take in the log probabilities of a part of a prompt; see `ModelRunner.score_prompt`."""
        return self._runner.score_prompt(scores, call, logits)

    def sample(self, step: PreparedStep, outputs: torch.Tensor) -> SampledStep:
        """Pick the next token of each of the step's requests."""
        return self._runner.sample(step, outputs)

    def update(self, sampled: SampledStep) -> list[EngineCoreOutput]:
        """Give the scheduler the tokens; it ends requests and frees their blocks."""
        scheduled = sampled.step.scheduler_output
        return self._scheduler.update_from_output(scheduled, sampled.output)

    def publish(
        self, sampled: SampledStep, core_outputs: list[EngineCoreOutput]
    ) -> list[StepOutput]:
        """Turn the tokens into text, which may end requests as well."""
        return self._requests.publish(sampled, core_outputs)
