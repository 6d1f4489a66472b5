"""Every file and module that a page, a comment or a message names is there under that name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from repository import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]
TEXTS = [
    *PAGES,
    *(ROOT / name for name in ("Makefile", "pyproject.toml")),
    *(
        path
        for folder in ("neuron_llm", "tests", "bench", "examples")
        for suffix in ("py", "cpp", "h")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    ),
]
# What a text calls a file: within backticks, or with the folder of this repository before it.
NAME = re.compile(
    r"`([\w/.-]+\.(?:py|cpp|h|md))(?:::\w+)?`"
    r"|\b((?:tests|docs|bench|examples|neuron_llm)/[\w/.-]+\.(?:py|cpp|h|md))\b"
)
# Those of the system and of other packages, and one that stands for any.
FOREIGN = {
    "data2vec/modeling_data2vec_text.py",
    "fcntl.h",
    "stdio.h",
    "tests/scheduler/file.py",
    "torch/csrc/inductor/aoti_runtime/interface.h",
}


def files(texts: Iterable[Path] = TEXTS) -> set[str]:
    """Return every file that may be named, from the root of the repository."""
    return {f"/{path.relative_to(ROOT)}" for path in texts}


def missing(text: str, known: set[str]) -> Iterator[str]:
    """Yield the names in a text that are no end of a known path."""
    for match in NAME.finditer(text):
        name = match[1] or match[2]
        if name not in FOREIGN and not any(path.endswith(f"/{name}") for path in known):
            yield name


def test_files_that_are_named_are_there() -> None:
    known = files()
    lost = {
        (str(path.relative_to(ROOT)), name)
        for path in TEXTS
        if path != Path(__file__)
        for name in missing(path.read_text(encoding="utf-8"), known)
    }
    assert lost == set()


def test_a_file_that_has_moved_is_found() -> None:
    text = "see `compile/plan.py`, docs/gone.md, `plan/plan.py`, `tests/test_gone.py::test_x`"
    assert list(missing(text, files())) == ["compile/plan.py", "docs/gone.md", "tests/test_gone.py"]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: page.name)
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    for dotted in re.findall(r"\bneuron_llm(?:\.\w+)+", page.read_text(encoding="utf-8")):
        path = ROOT / dotted.replace(".", "/")
        sources = (path.parent.with_suffix(".py"), path.parent / "__init__.py")
        texts = [each.read_text(encoding="utf-8") for each in sources if each.is_file()]
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        assert is_module or any(re.search(rf"\b{path.name}\b", text) for text in texts), dotted
