"""The scheduler's page names a test for each statement; the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

from repository import DOCS, ROOT

TESTS = {path.stem: path for path in Path(__file__).parent.rglob("test_*.py")}
PAGE = DOCS / "scheduler.md"


def test_every_test_that_the_page_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)::(test_\w+)`", page)
    assert len(named) > 40
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in TESTS[file].read_text(encoding="utf-8")
    ]
    assert missing == []
    for path in re.findall(r"`((?:tests|bench)/[\w/]+\.py)`", page):
        assert (ROOT / path).is_file(), path
