"""Keep progress bars, advice and warnings of libraries off the user's terminal."""

from __future__ import annotations

import logging
import os
import sys
import warnings

_NO_PROGRESS_BARS = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
_NO_ADVICE = {
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def silence_libraries(*, verbose: bool) -> None:
    """Set what libraries read when they are imported, so call this before importing them.

    Args:
        verbose: let them speak, and log to stderr.
    """
    # Bars would be drawn over our own progress, so they go in any case.
    for name, value in (_NO_PROGRESS_BARS if verbose else _NO_PROGRESS_BARS | _NO_ADVICE).items():
        os.environ.setdefault(name, value)
    if verbose:
        logging.basicConfig(stream=sys.stderr, level=logging.DEBUG)
        return
    # A record that no handler takes would be printed by Python itself.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
