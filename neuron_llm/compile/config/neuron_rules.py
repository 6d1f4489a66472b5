"""Rules about keys that only the Neuron backend reads."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_llm.backends.neuron.target import option_name
from neuron_llm.compile.config.config import Config, OnDeviceSamplingConfig
from neuron_llm.compile.config.fault import Fault, shown
from neuron_llm.compile.model.model_spec import ModelSpec

# Options of neuronx-cc that other keys or the backend itself set, each with what says so instead.
_TAKEN_OPTIONS = {
    "--target": "write `neuron_config.target` instead",
    "--logical-nc-config": "write `neuron_config.logical_nc_config` instead",
    "--framework": "it is always XLA; remove it",
    "--output": "the graph goes into the cache; remove it",
    "--logfile": "the log lies where the compiler works; remove it",
}


def check_compiler_args(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    """Arguments are options of neuronx-cc that nothing else sets."""
    arguments = config.neuron_config.compiler_args
    for index, argument in enumerate(arguments):
        key = f"neuron_config.compiler_args[{index}]"
        taken = _TAKEN_OPTIONS.get(option_name(argument))
        if taken is not None:
            yield Fault(key, f"{shown(argument)} is no argument to give; {taken}")
        elif index == 0 and not argument.startswith("-"):
            yield Fault(
                key, f"{shown(argument)} must begin with `-`; write an option of neuronx-cc first"
            )
        elif argument.startswith("-") and " " in argument.partition("=")[0]:
            yield Fault(
                key,
                f"{shown(argument)} is an option and its value in one text; write"
                f" {shown(argument.split(maxsplit=1))} or join them with `=`",
            )


def check_on_device_sampling(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    """Of the ways to choose a token in the graph, the most likely one is there."""
    sampling = config.neuron_config.on_device_sampling_config
    key = "neuron_config.on_device_sampling_config"
    if config.backend != "neuron" or sampling is None:
        return
    if not sampling.all_greedy:
        yield Fault(
            key,
            "without `all_greedy: true` the device draws tokens, which is not available in this"
            " version; write `all_greedy: true`, or remove the key: then the host draws",
        )
    elif sampling.max_top_k != OnDeviceSamplingConfig.model_fields["max_top_k"].default:
        yield Fault(
            f"{key}.max_top_k",
            f"{sampling.max_top_k} would bound what is drawn from, and with `all_greedy` nothing"
            " is drawn; remove the key",
        )
