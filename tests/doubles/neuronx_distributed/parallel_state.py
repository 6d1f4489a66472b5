from __future__ import annotations

from types import TracebackType
from typing import Self


class NxDParallelState:
    """The ranks that a model is traced for; the double has one."""

    _is_entered = False

    def __init__(self, *, world_size: int, tensor_model_parallel_size: int) -> None:
        if (world_size, tensor_model_parallel_size) != (1, 1):
            raise NotImplementedError("the double has one rank")

    def __enter__(self) -> Self:
        # Nothing says what one inside another is.
        if NxDParallelState._is_entered:
            raise RuntimeError("a parallel state is entered already")
        NxDParallelState._is_entered = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        NxDParallelState._is_entered = False
