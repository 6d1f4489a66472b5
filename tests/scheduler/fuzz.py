"""Judge both schedulers by as many random streams as one likes, beyond those of the test suite.

Usage: python tests/scheduler/fuzz.py NUM_STREAMS
"""

from __future__ import annotations

import sys
import time

from streams import BOTH_CLASSES, run_stream

# The test suite runs the seeds below.
FIRST_SEED = 10_000


def main(num_streams: int) -> None:
    """Run the streams; the first fault ends the run with the seed that shows it."""
    started = time.perf_counter()
    for seed in range(FIRST_SEED, FIRST_SEED + num_streams):
        for scheduler_class in BOTH_CLASSES:
            try:
                run_stream(seed, scheduler_class)
            except BaseException:
                print(f"{scheduler_class.__name__} fails at seed {seed}", file=sys.stderr)
                raise
    seconds = time.perf_counter() - started
    names = " and ".join(scheduler_class.__name__ for scheduler_class in BOTH_CLASSES)
    print(f"{num_streams} streams each through {names}: no fault, {seconds:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
