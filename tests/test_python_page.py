"""The examples of docs/python.md run in order, and print what stands below them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Compiled
from repository import ROOT

import neuron_llm

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_prints_what_stands_below_it(
    llama: Compiled,
    compile_cache: Path,
    empty_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 6
    shutil.copyfile(llama.config, "config.yaml")
    (empty_state / "cache").mkdir()
    (empty_state / "cache" / "neuron-llm").symlink_to(compile_cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty_state / "cache"))
    names: dict[str, object] = {}
    for code, expected in EXAMPLES:
        exec(code, names)
        assert capsys.readouterr().out == expected


def test_every_public_name_is_on_the_page() -> None:
    public = [name for name in neuron_llm.__all__ if name != "__version__"]
    assert all(f"`{name}`" in PAGE for name in public)
    assert all(callable(getattr(neuron_llm, name)) for name in public)


def test_importing_the_package_imports_nothing_that_takes_time() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'pydantic'}"
    check = f"import sys, neuron_llm; print(sorted({heavy} & set(sys.modules)))"
    plan = "; neuron_llm.plan_model, neuron_llm.build_report; print('torch' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", check + plan], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split("\n") == ["[]", "False", ""]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compile_everything'"):
        neuron_llm.compile_everything  # noqa: B018
