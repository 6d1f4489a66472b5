"""Finding stop strings in text that arrives piece by piece. Knows no torch and no tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopStringMatcher:
    """Withholds text that may begin a stop string, and cuts the text at the first whole one.

    Of several stop strings the one that is complete first wins, and the longest of those complete
    at the same character. The result is therefore the same however the text is split.

    Args:
        stop_strings: none of them empty.
        include_in_output: leave the stop string itself in the text.

    Attributes:
        matched: the stop string that was found; from then on every text is dropped.
    """

    def __init__(self, stop_strings: Sequence[str], *, include_in_output: bool) -> None:
        self._stop_strings = tuple(stop_strings)
        self._include_in_output = include_in_output
        self._max_withheld = max((len(stop) for stop in self._stop_strings), default=1) - 1
        self._withheld = ""
        self._num_exempt = 0
        self.matched: str | None = None

    def push(self, text: str, *, may_match: bool = True) -> str:
        """Add `text` and return what can be shown now.

        Args:
            text: what follows the text so far.
            may_match: False for text in which no stop string may end, since the output is still
                shorter than its minimum.
        """
        if self.matched is not None or not text:
            return ""
        if not self._stop_strings:
            return text
        pending = self._withheld + text
        if not may_match:
            self._num_exempt = len(pending)
        end, stop = self._first_match(pending)
        if stop is not None:
            self.matched = stop
            self._withheld = ""
            return pending[: end if self._include_in_output else end - len(stop)]
        num_shown = len(pending) - self._num_possible_start(pending)
        self._withheld = pending[num_shown:]
        self._num_exempt = max(0, self._num_exempt - num_shown)
        return pending[:num_shown]

    def flush(self) -> str:
        """Return what is still withheld: the text has ended, so it begins no stop string."""
        withheld, self._withheld = self._withheld, ""
        return withheld

    def _first_match(self, pending: str) -> tuple[int, str | None]:
        """Return the end of the first complete stop string and the string itself."""
        first_end, first_stop = len(pending) + 1, None
        for stop in self._stop_strings:
            # A match must end behind the exempt text, so it starts less than its length before it.
            start = pending.find(stop, max(0, self._num_exempt - len(stop) + 1))
            end = start + len(stop)
            if start >= 0 and (end, -len(stop)) < (first_end, -len(first_stop or "")):
                first_end, first_stop = end, stop
        return first_end, first_stop

    def _num_possible_start(self, pending: str) -> int:
        """Return how many of the last characters may be the beginning of a stop string."""
        for length in range(min(self._max_withheld, len(pending)), 0, -1):
            tail = pending[-length:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return length
        return 0
