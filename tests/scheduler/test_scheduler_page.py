"""The scheduler's page names a test for each statement; the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "scheduler.md"


def test_every_test_that_the_page_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)::(test_\w+)`", page)
    assert len(named) > 40
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (TESTS / f"{file}.py").read_text(encoding="utf-8")
    ]
    assert missing == []
    for path in re.findall(r"`((?:tests|bench)/[\w/]+\.py)`", page):
        assert (PAGE.parents[1] / path).is_file(), path
