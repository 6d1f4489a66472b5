"""What must be done when a block is left by an exception, Ctrl-C included."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class ExceptionGuard(AbstractContextManager[None]):
    """Does something if its block is left by an exception, and lets the exception go on.

    Not a generator of `contextlib`: one that an interrupt leaves in its block would do the thing
    when it is collected, which may be much later, to whatever is there then.

    Args:
        on_exception: what is to be done.
        harmless: exceptions after which nothing is.
    """

    def __init__(self, on_exception: Callable[[], None], *harmless: type[BaseException]) -> None:
        self._on_exception = on_exception
        self._harmless = harmless

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do it unless the block ended well or harmlessly."""
        if exc is not None and not isinstance(exc, self._harmless):
            self._on_exception()
