"""`neuron-llm run --prompts`: records, the summary, files, and where a value comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from artifact_copy import copy_artifact
from cli_runner import Ended, run_cli, run_cli_process
from conftest import Compiled

PROMPTS: list[Any] = [
    {"prompt": "hello", "max_tokens": 5},
    {"id": "b", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    "no object",
    {"prompt": "hello world, hello", "id": 7},
]


def write_prompts(lines: list[Any]) -> Path:
    path = Path("prompts.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_prompts(llama: Compiled, *args: object, lines: list[Any] = PROMPTS) -> Ended:
    """Run the lines greedily, each to its full length."""
    flags = ("--artifact", llama.artifact, "--temperature", 0, "--ignore-eos")
    return run_cli("run", "--prompts", write_prompts(lines), *flags, *args)


def test_records_come_in_order_and_a_bad_line_is_one_of_them(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_prompts(llama)
    assert ended.code == 3
    assert [record["index"] for record in ended.records] == [0, 1, 2, 3]
    assert [record["id"] for record in ended.records] == [0, "b", 2, 7]
    assert [record["num_output_tokens"] for record in ended.records] == [5, 3, None, 16]
    assert [record["error"] is None for record in ended.records] == [True, True, False, True]
    assert "token_ids" not in ended.records[0]


def test_summary_on_stderr_adds_up(llama: Compiled, empty_state: Path) -> None:
    summary = run_prompts(llama).stderr
    assert summary.startswith(f"artifact: {llama.artifact} (id ")
    assert "4 requests in " in summary
    assert ", 1 error\n" in summary
    assert " (0 cached), 24 output tokens\n" in summary
    for label in ("TTFT", "TPOT", "ITL", "E2EL", "prefill_t8", "total"):
        assert f"\n{label} " in summary
    assert "%|" not in summary


def test_run_without_failed_lines_ends_with_0(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, lines=PROMPTS[:2])
    assert ended.code == 0
    assert len(ended.records) == 2


def test_empty_file_is_a_run_of_nothing(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, lines=[])
    assert (ended.code, ended.stdout) == (0, "")
    assert "0 requests in " in ended.stderr


def test_latest_artifact_is_used_and_named(llama: Compiled, empty_state: Path) -> None:
    Path("artifacts").mkdir()
    Path("artifacts/tiny").symlink_to(llama.artifact)
    Path("artifacts/latest").symlink_to("tiny")
    ended = run_cli("run", "--prompts", write_prompts(PROMPTS[:1]))
    assert ended.code == 0
    assert ended.stderr.startswith("latest artifact: artifacts/tiny (id ")


def test_json_summary_agrees_with_the_records_and_the_log(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_prompts(llama, "-o", "out.jsonl", "--json", "--token-ids")
    summary = ended.document
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    done = [record for record in records if record["error"] is None]
    assert (ended.code, summary["schema_version"]) == (3, 1)
    assert (summary["num_completed"], summary["num_failed"]) == (3, 1)
    assert summary["num_output_tokens"] == sum(len(record["token_ids"]) for record in done)
    assert summary["num_prompt_tokens"] == sum(record["num_prompt_tokens"] for record in done)
    total = summary["padding"]["total"]
    # Every prompt token is computed or cached; a request's last token is never computed.
    computed = summary["num_prompt_tokens"] + summary["num_output_tokens"] - len(done)
    assert total["num_real_tokens"] + total["num_cached_tokens"] == computed
    report = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert report["total"] == total


def test_json_needs_a_file_for_the_records(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    assert "`--json` needs `-o FILE`" in ended.stderr


def test_existing_output_is_replaced_only_by_force(llama: Compiled, empty_state: Path) -> None:
    Path("out.jsonl").write_text("precious\n")
    refused = run_prompts(llama, "-o", "out.jsonl")
    assert (refused.code, refused.stdout) == (1, "")
    assert "error: `out.jsonl` exists already" in refused.stderr
    assert Path("out.jsonl").read_text() == "precious\n"
    replaced = run_prompts(llama, "-o", "out.jsonl", "--force")
    assert (replaced.code, replaced.stdout) == (3, "")
    assert len(Path("out.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_run_that_cannot_load_leaves_the_output_as_it_was(
    llama: Compiled, empty_state: Path, force: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("neuron_llm.runtime.batch.job_run.Artifact.open", fail)
    output = Path("out.jsonl")
    if force:
        output.write_text("precious\n")
    ended = run_prompts(llama, "-o", output, *force)
    assert ended.code == 1
    assert output.exists() == bool(force)
    assert not force or output.read_text() == "precious\n"


def test_prompts_file_is_never_the_output(llama: Compiled, empty_state: Path) -> None:
    Path("link.jsonl").symlink_to("prompts.jsonl")
    ended = run_prompts(llama, "-o", "link.jsonl", "--force")
    assert ended.code == 1
    assert "`link.jsonl` is the prompts file itself" in ended.stderr
    assert len(Path("prompts.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("output", ["no/such/out.jsonl", "."])
def test_output_that_cannot_be_written_is_refused_before_loading(
    llama: Compiled, empty_state: Path, output: str
) -> None:
    ended = run_prompts(llama, "-o", output)
    assert ended.code == 1
    assert f"error: cannot write `{output}`: " in ended.stderr
    assert "loaded" not in ended.stderr


def test_output_can_be_a_device(llama: Compiled, empty_state: Path) -> None:
    assert run_prompts(llama, "-o", "/dev/null").code == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_is_an_expected_failure(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, "-o", "/dev/full")
    assert ended.code == 1
    assert "error: cannot write `/dev/full`: no space left on device\n" in ended.stderr


def test_missing_prompts_file_is_refused(llama: Compiled, empty_state: Path) -> None:
    ended = run_cli("run", "--prompts", "none.jsonl", "--artifact", llama.artifact)
    assert ended.code == 1
    assert "cannot read the prompts file `none.jsonl`" in ended.stderr


def test_two_lines_with_one_id_are_refused_before_loading(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_prompts(llama, lines=[{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}])
    assert (ended.code, ended.stdout) == (1, "")
    assert 'id "x" is in line 1 and in line 2' in ended.stderr
    assert "loaded" not in ended.stderr


def test_unknown_field_is_a_warning(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, lines=[{"prompt": "hello", "max_token": 2}])
    assert ended.code == 0
    assert "warning: unknown field `max_token` ignored in 1 line" in ended.stderr


@pytest.mark.parametrize("content", [[1], {"temperature": "hot"}])
def test_damaged_generation_config_is_refused(
    llama: Compiled, empty_state: Path, content: object
) -> None:
    artifact = copy_artifact(llama.artifact, Path("copy"), {"generation_config.json": content})
    ended = run_cli("run", "--prompts", write_prompts([]), "--artifact", artifact)
    assert ended.code == 1
    assert "error: `copy/generation_config.json` cannot be used: " in ended.stderr


def test_line_wins_over_flag_and_flag_over_model(llama: Compiled, empty_state: Path) -> None:
    model = {"max_new_tokens": 4, "top_k": 1}
    artifact = copy_artifact(llama.artifact, Path("copy"), {"generation_config.json": model})
    prompts = write_prompts([{"prompt": "hello", "max_tokens": 2}, {"prompt": "hello"}])
    run = ("run", "--prompts", prompts, "--artifact", artifact, "--ignore-eos")

    from_model = run_cli(*run)
    assert [r["num_output_tokens"] for r in from_model.records] == [2, 4]
    # `top_k: 1` is greedy, whatever the temperature.
    assert from_model.records[1]["text"] == run_cli(*run, "--temperature", 0).records[1]["text"]
    from_flag = run_cli(*run, "--max-tokens", 6)
    assert [r["num_output_tokens"] for r in from_flag.records] == [2, 6]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "3"], "`temperature` is 3.0, not a number in [0, 2]"),
        (["--max-tokens", "0"], "`max_tokens` is 0"),
        (["--min-tokens", "9", "--max-tokens", "8"], "`min_tokens` is 9"),
        (["--stop", ""], "`stop` is ['']"),
        (["--raw"], "`--raw` works only without `--prompts`"),
    ],
)
def test_wrong_flags_are_usage_errors(
    llama: Compiled, empty_state: Path, flags: list[str], message: str
) -> None:
    ended = run_cli("run", "--prompts", "x.jsonl", "--artifact", llama.artifact, *flags)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_stop_flags_end_every_line(llama: Compiled, empty_state: Path) -> None:
    free = run_prompts(llama, "--token-ids", lines=[{"prompt": "hello"}]).records[0]
    third = free["token_ids"][2]
    stopped = run_prompts(
        llama, "--stop-token-id", third, "--token-ids", lines=[{"prompt": "hello"}]
    ).records[0]
    assert stopped["token_ids"] == free["token_ids"][: free["token_ids"].index(third) + 1]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", third)


def test_seed_flag_makes_a_run_repeatable(llama: Compiled, empty_state: Path) -> None:
    prompts = write_prompts([{"prompt": "hello"}])
    run = ("run", "--prompts", prompts, "--artifact", llama.artifact, "--ignore-eos", "--token-ids")
    tokens = [run_cli(*run, "--seed", seed).records[0]["token_ids"] for seed in (1, 1, 2)]
    assert tokens[0] == tokens[1] != tokens[2]


def test_quiet_run_writes_records_only(llama: Compiled, empty_state: Path) -> None:
    ended = run_prompts(llama, "-q")
    assert (ended.code, ended.stderr) == (3, "")
    assert len(ended.records) == 4


def test_state_that_cannot_be_written_is_a_warning(llama: Compiled, empty_state: Path) -> None:
    Path(".neuron-llm").write_text("a file is in the way")
    ended = run_prompts(llama, lines=PROMPTS[:1])
    assert ended.code == 0
    assert len(ended.records) == 1
    assert "warning: `bucket-report` will not show this run: " in ended.stderr


def test_process_of_its_own_writes_nothing_but_our_lines(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_cli_process(
        "run", "--prompts", write_prompts(PROMPTS[:2]), "--artifact", llama.artifact, "-q"
    )
    assert (ended.code, ended.stderr) == (0, "")
    assert len(ended.records) == 2
