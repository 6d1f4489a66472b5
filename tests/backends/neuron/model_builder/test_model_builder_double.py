"""What the double of neuronx_distributed takes, and that it refuses what is not documented."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from neuron_doubles import use_doubles

from neuron_llm.backends.neuron.graph.torch_releases import save_script, torchscript

ARGUMENTS = "--target trn2 -O1"


class Adder(torch.nn.Module):
    """A tiny model with a weight and a state."""

    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0), requires_grad=False)
        self.register_buffer("cache", torch.zeros(3))

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.cache = self.cache + step
        return x * self.weight + self.cache


class InPlace(Adder):
    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.cache.add_(step)
        return x + self.cache


class ReplacesParameter(Adder):
    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.weight = torch.nn.Parameter(self.weight + 1, requires_grad=False)
        return x * self.weight + step


class WritesParameter(Adder):
    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.weight.add_(1)
        return x * self.weight + step


class ChangesDtype(Adder):
    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.cache = (self.cache + step).double()
        return x


class ChangesShape(Adder):
    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.cache = (self.cache + step)[None]
        return x


class TakesAny(torch.nn.Module):
    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return args[0]


class TakesAnyName(torch.nn.Module):
    def forward(self, x: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        return x


class TakesNothing(torch.nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.zeros(1)


@pytest.fixture(scope="module", autouse=True)
def doubles() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_doubles(monkeypatch)
        yield


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the compiler works."""
    return tmp_path_factory.mktemp("work")


def inputs(rows: int | None = None) -> dict[str, torch.Tensor]:
    shape = (3,) if rows is None else (rows, 3)
    return {"x": torch.ones(shape), "step": torch.full((3,), 5.0)}


def traced(model: torch.nn.Module, rows: int | None = None) -> Any:
    from neuronx_distributed.trace.model_builder import trace

    return trace(model, kwargs=inputs(rows))


@cache
def compiled(rows: int | None, directory: Path) -> tuple[Any, Any]:
    """Return the trace artifacts of a bucket and what was compiled of them; neither changes."""
    from neuronx_distributed.trace.model_builder import compile as compile_hlo

    artifacts = traced(Adder(), rows)
    return artifacts, compile_hlo(artifacts.hlo, artifacts.metaneff, directory, ARGUMENTS)


def joined(directory: Path, **rows: int | None) -> Any:
    """Return a model of the buckets that are named, not on the device yet."""
    from neuronx_distributed import NxDModel

    model = NxDModel(world_size=1)
    for key, count in rows.items():
        model.add(key, *compiled(count, directory))
    return model


def on_device(model: Any) -> Any:
    model.set_weights([{"weight": torch.full((3,), 2.0)}])
    model.to_neuron()
    return model


def test_buckets_share_their_state_which_starts_at_zero(work_dir: Path) -> None:
    model = on_device(joined(work_dir, one=None, four=4))
    assert model(**inputs()).tolist() == [7, 7, 7]
    assert model(**inputs(4), forward_mode="default")[0].tolist() == [12, 12, 12]
    one = {name: [tensor] for name, tensor in inputs().items()}
    assert model(**one, forward_mode="ranked")[0][0].tolist() == [17, 17, 17]
    assert model.read_from_neuron_buffer("cache", 0).tolist() == [15, 15, 15]
    model.write_to_neuron_buffer(torch.zeros(3), "cache", 0)
    model.replace_weights([{"weight": torch.zeros(3)}])
    assert model(**inputs()).tolist() == [5, 5, 5]


def test_a_saved_model_holds_neither_weights_nor_states(work_dir: Path, tmp_path: Path) -> None:
    from neuronx_distributed import NxDModel

    model = on_device(joined(work_dir, one=None))
    model(**inputs())
    model.save(str(tmp_path / "model.pt"))
    first, second = (NxDModel.load(str(tmp_path / "model.pt")) for _ in range(2))
    with pytest.raises(RuntimeError, match="no weights"):
        first.to_neuron()
    assert on_device(first)(**inputs()).tolist() == [7, 7, 7]
    assert on_device(second)(**inputs()).tolist() == [7, 7, 7]
    assert first.get_neff("one") == model.get_neff("one")


def test_an_asynchronous_output_holds_nothing_before_it_is_waited_for(work_dir: Path) -> None:
    model = on_device(joined(work_dir, one=None))
    given = {name: [tensor] for name, tensor in inputs().items()}
    ((first,),) = model(**given, forward_mode="async")
    ((second,),) = model(**given, forward_mode="async")
    with pytest.raises(TypeError):
        first + 1
    with pytest.raises(RuntimeError, match="a call is not over"):
        model.read_from_neuron_buffer("cache", 0)
    # The caller's tensors are read when the call is executed.
    given["x"][0].fill_(0)
    assert second.cpu().tolist() == [10, 10, 10]
    assert first.cpu().tolist() == [5, 5, 5]


def test_the_high_level_builder_does_the_same(tmp_path: Path) -> None:
    from neuronx_distributed import ModelBuilder, NxDParallelState, shard_checkpoint

    with NxDParallelState(world_size=1, tensor_model_parallel_size=1):
        builder = ModelBuilder(Adder()).trace(kwargs=inputs(), tag="one")
        model = builder.compile(compiler_workdir=tmp_path, compiler_args=ARGUMENTS)
    (directory,) = (tmp_path / "one").iterdir()
    files = ["command.txt", "graph.neff", "log-neuron-cc.txt", "metaneff.pb", "model"]
    assert sorted(path.name for path in directory.iterdir()) == files
    checkpoint = {"weight": torch.full((3,), 2.0), "cache": torch.zeros(3)}
    model.set_weights(shard_checkpoint(checkpoint, Adder(), serialize_path=str(tmp_path / "w")))
    model.to_neuron()
    assert model(torch.ones(3), step=torch.full((3,), 5.0)).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (InPlace(), "cache is written in place"),
        (WritesParameter(), "weight is written in place"),
        (ReplacesParameter(), "a parameter is replaced"),
        (ChangesDtype(), "cache is replaced by another shape or dtype"),
        (ChangesShape(), "cache is replaced by another shape or dtype"),
        (TakesAny(), r"\*args or \*\*kwargs"),
        (TakesAnyName(), r"\*args or \*\*kwargs"),
        (TakesNothing(), "without a parameter"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_a_model_that_cannot_be_traced_is_refused(model: torch.nn.Module, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message):
        traced(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kwargs": inputs(), "spmd": False}, "only be True"),
        ({"args": torch.ones(3), "kwargs": inputs()}, "given twice"),
        ({"kwargs": {**inputs(), "y": torch.ones(3)}}, "y is no parameter"),
        ({"args": (torch.ones(3),)}, "inputs are missing"),
        ({"kwargs": {**inputs(), "x": torch.ones(3, device="meta")}}, "no CPU tensor"),
        ({"kwargs": {**inputs(), "x": 1}}, "no CPU tensor"),
    ],
)
def test_a_trace_takes_the_parameters_by_name(options: dict[str, Any], message: str) -> None:
    from neuronx_distributed.trace.model_builder import trace

    with pytest.raises((TypeError, ValueError), match=message):
        trace(Adder(), **options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--target", "trn2"], TypeError, "compiler_args is a text"),
        (None, RuntimeError, "neuronx-cc failed with 2"),
        ("--target trn2 --fast", RuntimeError, "neuronx-cc failed with 2"),
    ],
)
def test_the_compiler_takes_one_text_that_names_a_target(
    arguments: Any, error: type[Exception], message: str, work_dir: Path, tmp_path: Path
) -> None:
    from neuronx_distributed.trace.model_builder import compile as compile_hlo

    artifacts, _ = compiled(None, work_dir)
    with pytest.raises(error, match=message):
        compile_hlo(artifacts.hlo, artifacts.metaneff, tmp_path, arguments)


def test_trace_artifacts_cannot_be_stored(work_dir: Path) -> None:
    artifacts, _ = compiled(None, work_dir)
    with pytest.raises(TypeError, match="cannot be stored"):
        pickle.dumps(artifacts)


def test_a_program_of_another_bucket_is_refused(work_dir: Path) -> None:
    from neuronx_distributed import NxDModel

    (one, _), (_, neff_of_four) = compiled(None, work_dir), compiled(4, work_dir)
    with pytest.raises(RuntimeError, match="the NEFF of one was compiled of another HLO"):
        NxDModel(world_size=1).add("one", one, neff_of_four)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda m: m(**inputs()), RuntimeError, "to_neuron"),
        (lambda m: m.read_from_neuron_buffer("cache", 0), AssertionError, "to_neuron"),
        (lambda m: m.set_weights([{}]), ValueError, "weights are missing"),
        (lambda m: m.set_weights({"weight": torch.ones(3)}), TypeError, "a list of one"),
        (lambda m: m.set_weights([{"weight": torch.ones(4)}]), ValueError, "another shape"),
        (
            lambda m: m.set_weights([{"weight": torch.ones(3), "bias": torch.ones(3)}]),
            ValueError,
            "bias is no weight",
        ),
        (lambda m: on_device(m).set_weights([{}]), ValueError, "on the device already"),
        (lambda m: on_device(m)(**inputs(), model_name="two"), KeyError, "two"),
        (lambda m: on_device(m)(**inputs()), RuntimeError, "2 models have these shapes"),
        (
            lambda m: on_device(m)(**inputs(), model_name="one", forward_mode="async"),
            TypeError,
            "a list of one tensor for each rank",
        ),
        (
            lambda m: on_device(m)(**inputs(2), model_name="one"),
            ValueError,
            "x has another shape or dtype",
        ),
        (
            lambda m: on_device(m)(torch.ones(3), model_name="one"),
            TypeError,
            "the inputs are",
        ),
        (lambda m: on_device(m).read_from_neuron_buffer("kv", 0), KeyError, "kv"),
        (
            lambda m: on_device(m).write_to_neuron_buffer(torch.zeros(4), "cache", 0),
            KeyError,
            "another shape",
        ),
    ],
)
def test_what_a_model_does_not_promise_is_refused(
    action: Callable[[Any], object], error: type[Exception], message: str, work_dir: Path
) -> None:
    with pytest.raises(error, match=message):
        action(joined(work_dir, one=None, other=None))


def test_what_was_not_saved_by_the_package_is_refused(tmp_path: Path) -> None:
    from neuronx_distributed import NxDModel

    with torchscript():
        save_script(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "plain.pt")
    with pytest.raises(ValueError, match="not saved by"):
        NxDModel.load(str(tmp_path / "plain.pt"))
