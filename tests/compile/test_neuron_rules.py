"""Rules about keys of the Neuron backend, and what the compiler is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import faults, plan

from neuron_llm.backends.neuron.target import NeuronTarget

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


def test_a_binding_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    assert faults(tmp_path, f"{NEURON}  binding: model_builder\n") == [
        "5: neuron_config.binding: model_builder is not available in this version; write `trace`,"
        " or remove the key"
    ]


def test_given_arguments_replace_the_defaults_of_the_same_option() -> None:
    plain = NeuronTarget("inf2", 1).compiler_arguments()
    assert plain == ["--target", "inf2", "--model-type=transformer", "--auto-cast=none", "-O1"]
    given = NeuronTarget("trn2", 2, compiler_args=("--optlevel=2", "--verbose=info"))
    assert given.compiler_arguments() == [
        *("--target", "trn2", "--logical-nc-config=2", "--model-type=transformer"),
        *("--auto-cast=none", "--optlevel=2", "--verbose=info"),
    ]
