"""What the README says is so: its file map, its commands, its links, its configuration."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from file_map import file_map
from repository import DOCS, ROOT

from neuron_llm.compile.config.config import Config
from neuron_llm.runtime.batch.prompt_line import PromptLine, parse_line
from neuron_llm.runtime.batch.records import OutputRecord

README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_file_map_is_up_to_date() -> None:
    page = (DOCS / "files.md").read_text(encoding="utf-8")
    assert page == file_map() + "\n", "run `python tests/file_map.py > docs/files.md`"


def test_the_first_page_is_short() -> None:
    assert README.count("\n") < 200


def test_the_configuration_is_valid() -> None:
    (text,) = code_blocks("yaml")
    config = Config.model_validate(yaml.safe_load(text))
    example = yaml.safe_load((ROOT / "configs" / "smollm2-135m.yaml").read_text())
    assert config == Config.model_validate(example)


def test_the_prompt_line_is_read_and_the_record_has_every_key() -> None:
    line, record = code_blocks("json")
    parsed = parse_line(line.encode(), 0, 1)
    assert isinstance(parsed, PromptLine) and parsed.id == "capital"
    written = OutputRecord("capital", 0, text="").to_json()
    assert list(json.loads(record)) == list(written)


def test_the_example_of_the_scheduler_prints_what_stands_below_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (DOCS / "scheduler.md").read_text()
    code, expected = re.findall(r"```(?:python)?\n(.*?)```", page[page.index("```python") :], re.S)[
        :2
    ]
    exec(code, {})
    assert capsys.readouterr().out == expected


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *DOCS.glob("*.md")]))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_is_documented() -> None:
    from neuron_llm.cli.main import app

    names = {command.name for command in app.registered_commands}
    groups = [group.typer_instance for group in app.registered_groups]
    names |= {group.info.name for group in groups if group is not None}
    pages = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    for name in names:
        assert f"neuron-llm {name}" in README, name
        heading = re.compile(rf"^##? neuron-llm {name}$", re.MULTILINE)
        assert any(heading.search(page) for page in pages), name
