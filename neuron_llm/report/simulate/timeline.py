"""Queues and KV blocks over time, for pictures. Knows no torch."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_NUM_BINS = 200


@dataclass(frozen=True, slots=True)
class Load:
    """What there is while a step runs.

    Attributes:
        num_running: requests that hold blocks.
        num_waiting: requests that have come and hold none.
        num_used_blocks: KV blocks that requests hold.
    """

    num_running: float
    num_waiting: float
    num_used_blocks: float


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """A stretch of time.

    Attributes:
        started_s: when it begins.
        ended_s: when the next one does.
        mean: over the stretch; while nothing runs, there is nothing.
        greatest: of each number by itself.
    """

    started_s: float
    ended_s: float
    mean: Load
    greatest: Load

    def to_json(self) -> dict[str, Any]:
        """Return the stretch as JSON keys and values."""
        return {
            "started_s": self.started_s,
            "ended_s": self.ended_s,
            **{f"mean_{name}": value for name, value in asdict(self.mean).items()},
            **{f"max_{name}": value for name, value in asdict(self.greatest).items()},
        }


class Timeline:
    """The load of each step of a run; the steps follow one another."""

    def __init__(self) -> None:
        self._started, self._ended = array("d"), array("d")
        self._running, self._waiting, self._used = array("q"), array("q"), array("q")

    def add(self, started_s: float, ended_s: float, load: Load) -> None:
        """Add a step; its load is in whole numbers."""
        self._started.append(started_s)
        self._ended.append(ended_s)
        self._running.append(int(load.num_running))
        self._waiting.append(int(load.num_waiting))
        self._used.append(int(load.num_used_blocks))

    @property
    def ended_s(self) -> float:
        """When the last step ended; 0 without any."""
        return self._ended[-1] if self._ended else 0.0

    @property
    def total(self) -> TimelineBin:
        """The whole run as one stretch."""
        return self.bins(1)[0]

    def bins(self, num_bins: int = DEFAULT_NUM_BINS) -> list[TimelineBin]:
        """Return the run, from 0 to its end, cut into equal stretches.

        Args:
            num_bins: at least 1.
        """
        width = self.ended_s / num_bins
        sums = [[0.0, 0.0, 0.0] for _ in range(num_bins)]
        greatest = [[0, 0, 0] for _ in range(num_bins)]
        loads = zip(self._running, self._waiting, self._used, strict=True)
        for started, ended, load in zip(self._started, self._ended, loads, strict=True):
            for index, seconds in _pieces(started, ended, width, num_bins):
                for column, value in enumerate(load):
                    sums[index][column] += value * seconds
                    greatest[index][column] = max(greatest[index][column], value)
        return [
            TimelineBin(
                index * width,
                (index + 1) * width,
                Load(*(total / width if width else 0.0 for total in sums[index])),
                Load(*greatest[index]),
            )
            for index in range(num_bins)
        ]


def _pieces(
    started: float, ended: float, width: float, num_bins: int
) -> Iterator[tuple[int, float]]:
    """Yield the stretches that a step lies in, and the seconds of it in each."""
    last = min(int(ended / width), num_bins - 1)
    for index in range(int(started / width), last + 1):
        end = ended if index == last else (index + 1) * width
        seconds = end - max(started, index * width)
        # A step that ends where a stretch begins is none of it.
        if seconds > 0:
            yield index, seconds
