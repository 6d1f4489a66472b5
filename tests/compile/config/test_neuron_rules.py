"""Rules about keys of the Neuron backend, and what the compiler is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import faults, load, plan

from neuron_llm.backends.neuron.target import Binding, NeuronTarget
from neuron_llm.compile.plan.plan import plan_compile

NEURON = "backend: neuron\nneuron_config:\n  target: trn2\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            '["--target=trn1"]',
            '[0]: "--target=trn1" is no argument to give; write `neuron_config.t',
        ),
        ('["-O2", "-lnc=1"]', '[1]: "-lnc=1" is no argument to give; write `neuron_config.logical'),
        ('["--output", "x"]', '[0]: "--output" is no argument to give; the graph goes into the'),
        ('["O2"]', '[0]: "O2" must begin with `-`; write an option of neuronx-cc first'),
        ('["--optlevel 2"]', '[0]: "--optlevel 2" is an option and its value in one text; write'),
    ],
)
def test_arguments_that_are_not_for_the_compiler_are_refused(
    arguments: str, fault: str, tmp_path: Path
) -> None:
    (found,) = faults(tmp_path, f"{NEURON}  compiler_args: {arguments}\n")
    assert found.startswith(f"5: neuron_config.compiler_args{fault}")


def test_options_and_their_values_pass(tmp_path: Path) -> None:
    text = '  compiler_args: ["--model-type", "generic", "-O2", "--tensorizer-options=-a -b"]\n'
    neuron = plan(tmp_path, NEURON + text).neuron
    assert neuron is not None and neuron.compiler_args[2] == "-O2"


@pytest.mark.parametrize(
    ("written", "installed", "planned", "num_copies"),
    [
        ("auto", "trace", "trace", 4),
        ("auto", "model_builder", "model_builder", 1),
        ("trace", "model_builder", "trace", 4),
        ("model_builder", "trace", "model_builder", 1),
    ],
)
def test_what_is_written_goes_before_what_is_installed(
    written: str, installed: Binding, planned: str, num_copies: int, tmp_path: Path
) -> None:
    loaded = load(
        tmp_path, f"max_num_seqs: 1\nmax_num_batched_tokens: 512\n{NEURON}  binding: {written}\n"
    )
    assert loaded.model_spec is not None
    found = plan_compile(loaded, loaded.model_spec, auto_binding=installed)
    assert found.neuron is not None and found.neuron.binding == planned
    assert len(found.buckets.all) == 4 and found.memory.num_copies == num_copies
    # It decides what lies on the device, and not how many blocks are compiled in.
    assert found.num_blocks == 129
    guesses = [text for text in found.warnings if text.startswith("`binding: auto` is `trace`")]
    assert len(guesses) == (written == "auto" and planned == "trace")


def test_given_arguments_replace_the_defaults_of_the_same_option() -> None:
    plain = NeuronTarget("inf2", 1).compiler_arguments()
    assert plain == ["--target", "inf2", "--model-type=transformer", "--auto-cast=none", "-O1"]
    given = NeuronTarget("trn2", 2, compiler_args=("--optlevel=2", "--verbose=info"))
    assert given.compiler_arguments() == [
        *("--target", "trn2", "--logical-nc-config=2", "--model-type=transformer"),
        *("--auto-cast=none", "--optlevel=2", "--verbose=info"),
    ]
