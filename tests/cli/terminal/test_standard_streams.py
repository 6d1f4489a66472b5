"""A shell may have closed any of the three standard streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Compiled


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_one_that_nobody_uses(
    llama: Compiled, empty_state: Path, closed: str
) -> None:
    Path("prompts.jsonl").write_text('{"prompt_token_ids": [1, 2], "max_tokens": 2}\n')
    command = f'"$0" -m neuron_llm.cli.main run --artifact "$1" "${{@:2}}" {closed}'
    artifact = str(llama.artifact)
    for args in ([], ["--prompts", "prompts.jsonl", "-o", "out.jsonl", "--force"]):
        ended = subprocess.run(
            ["bash", "-c", command, sys.executable, artifact, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    assert Path("out.jsonl").read_text().count("\n") == 1
