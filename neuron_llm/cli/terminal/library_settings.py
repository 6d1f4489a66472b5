"""What libraries read when they are imported: no bars, no advice, threads that share the cores."""

from __future__ import annotations

import logging
import os
import sys
import warnings

# A graph's threads meet at a barrier after every operator. By default they spin there, and when
# other processes want the cores too, a step takes fifty times as long; a short spin costs nothing.
_SHORT_SPIN = {"GOMP_SPINCOUNT": "1000"}
_NO_PROGRESS_BARS = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
_NO_ADVICE = {
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_SILENCE = logging.NullHandler()


def prepare_libraries(*, verbose: bool) -> None:
    """Set what libraries read when they are imported, so call this before importing them.

    Args:
        verbose: let them speak, and log to stderr.
    """
    # Bars would be drawn over our own progress, so they go in any case.
    settings = _SHORT_SPIN | _NO_PROGRESS_BARS | ({} if verbose else _NO_ADVICE)
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    root = logging.getLogger()
    if verbose:
        # `-v` may come behind the command, when a look without it has silenced the log already.
        root.removeHandler(_SILENCE)
        logging.basicConfig(stream=sys.stderr, level=logging.DEBUG)
        return
    # A record that no handler takes would be printed by Python itself.
    if not root.handlers:
        root.addHandler(_SILENCE)
    warnings.simplefilter("ignore")
