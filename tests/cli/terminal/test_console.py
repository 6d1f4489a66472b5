"""What people are told: every kind of text as it is, save for what would steer their terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from artifact_copy import copy_artifact
from cli_runner import run_cli
from conftest import Compiled

from neuron_llm.cli.terminal.console import Console
from neuron_llm.errors import ConfigError


def test_text_of_the_user_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.notice("a\x1b[2Jb\x07\udcff é 你\nnext")
    console.warn("\x9b1A")
    console.show_failure(ConfigError("m\x08", faults=("f\r",), hint="h\x00"))
    assert capsys.readouterr().err == (
        "a\\x1b[2Jb\\x07\\udcff é 你\nnext\nwarning: \\x9b1A\nerror: m\\x08\nf\\r\n\nhint: h\\x00\n"
    )


def test_a_field_name_is_escaped_in_its_warning(llama: Compiled, empty_state: Path) -> None:
    line = {"prompt": "x", "max_tokens": 1, "\x1b[31mred": 1}
    Path("prompts.jsonl").write_text(json.dumps(line))
    ended = run_cli("run", "--prompts", "prompts.jsonl", "--artifact", llama.artifact)
    assert "unknown field `\\x1b[31mred` ignored in 1 line" in ended.stderr
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_a_file_without_prompts_is_worth_a_warning(
    llama: Compiled, empty_state: Path, content: str
) -> None:
    Path("prompts.jsonl").write_text(content)
    ended = run_cli("run", "--prompts", "prompts.jsonl", "--artifact", llama.artifact)
    assert (ended.code, ended.stdout) == (0, "")
    assert "warning: no prompts in `prompts.jsonl`\n" in ended.stderr


@pytest.mark.parametrize("content", [[], [1], "text", 5, None])
def test_generation_defaults_that_are_no_object_are_refused(
    llama: Compiled, empty_state: Path, content: object
) -> None:
    artifact = copy_artifact(llama.artifact, Path("copy"), {"generation_config.json": content})
    ended = run_cli("run", "--prompts", "none.jsonl", "--artifact", artifact)
    assert (ended.code, ended.stdout) == (1, "")
    assert "generation_config.json` cannot be used: it is no JSON object" in ended.stderr


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_turn_that_is_not_utf8_is_refused_and_the_next_is_not(
    llama: Compiled, empty_state: Path, locale: str
) -> None:
    flags = ["--temperature", "0", "--ignore-eos", "--max-tokens", "2"]
    command = [sys.executable, "-m", "neuron_llm.cli.main", "run", *flags]
    ended = subprocess.run(
        [*command, "--artifact", str(llama.artifact)],
        env={"LC_ALL": locale, "HF_HUB_OFFLINE": "1", "PATH": ""},
        input=b"caf\xe9\nhi\n",
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    assert b"error: the line is not UTF-8\n" in ended.stderr
    assert len(ended.stdout.split(b"\n")) >= 2
