"""`neuron-llm inspect` and `neuron-llm artifact`: looked at, checked, tidied up, moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import run_cli
from conftest import Compiled

from neuron_llm.artifact.manifest import read_manifest

GRAPHS = ["prefill_t8", "prefill_t16", "decode_b1_c64", "decode_b2_c64", "decode_b4_c64"]


@pytest.fixture
def copy(llama: Compiled, empty_state: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, empty_state / "copy"))


def test_inspect_shows_what_an_artifact_is(llama: Compiled) -> None:
    ended = run_cli("inspect", llama.artifact, "-q")
    assert (ended.code, ended.stderr) == (0, "")
    head, table = ended.stdout.split("\n\n")
    facts = dict(line.split(maxsplit=1) for line in head.splitlines())
    manifest = read_manifest(llama.artifact)
    assert (facts["name"], facts["id"]) == ("tiny", manifest.artifact_id)
    assert facts["limits"] == "max_model_len 64, max_num_seqs 4, max_num_batched_tokens 16"
    assert facts["sizes"] == "2 layers, 2 KV heads of 16, vocabulary of 272"
    assert facts["verified"] == "every graph, against the eager model"
    assert f"torch {manifest.backend_versions['torch']}" in facts["versions"]
    assert f"isa_level: {manifest.requirements['isa_level'][0]}" in facts["needs"]
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows] == ["graph", *GRAPHS]
    assert table.splitlines()[1].startswith("prefill_t8     1-8 prompt tokens")


def test_inspect_as_json_has_every_graph_with_shapes_verdict_and_size(llama: Compiled) -> None:
    ended = run_cli("inspect", llama.artifact, "--json")
    shown, manifest = ended.document, read_manifest(llama.artifact)
    assert (shown["schema_version"], shown["is_verified"], shown["backend"]) == (1, True, "cpu")
    assert [graph["graph"] for graph in shown["graphs"]] == GRAPHS
    last = shown["graphs"][-1]
    assert (last["batch_size"], last["max_context_tokens"]) == (4, 64)
    assert last["inputs"]["block_tables"] == [4, 16]
    verdict = manifest.graphs[-1].verification
    assert verdict is not None
    assert last["verification"]["worst_error"] == verdict.worst_error
    on_disk = sum(path.stat().st_size for path in (llama.artifact / "graphs").rglob("*.*"))
    assert sum(graph["size_bytes"] for graph in shown["graphs"]) == on_disk
    assert shown["settings"]["block_size"] == 4 and shown["model"]["head_dim"] == 16
    assert shown["config"]["neuron_config"]["num_batched_tokens_buckets"] == [8, 16]


def test_inspect_without_a_name_takes_the_latest(
    llama: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(llama.artifact.parents[1])
    ended = run_cli("inspect", "--json")
    assert ended.document["artifact_id"] == read_manifest(llama.artifact).artifact_id
    assert ended.stderr.startswith("latest artifact: artifacts/tiny ")


@pytest.mark.parametrize(
    "command",
    ["['inspect', sys.argv[1]]", "['artifact', 'verify', sys.argv[1]]", "['cache', 'list']"],
)
def test_looking_imports_no_torch(command: str, llama: Compiled, tmp_path: Path) -> None:
    script = (
        "import sys; from neuron_llm.cli.main import main\n"
        f"sys.argv = ['neuron-llm', *{command}]\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    environment = {**os.environ, "NEURON_LLM_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script, llama.artifact], env=environment, check=True)


def test_verify_says_that_all_is_well(llama: Compiled) -> None:
    ended = run_cli("artifact", "verify", llama.artifact)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{llama.artifact}: ")
    assert ended.stdout.endswith("every byte as it was compiled\n")


def test_verify_names_every_damaged_file_and_fails(copy: Path) -> None:
    (copy / "config.json").unlink()
    graph = copy / "graphs" / "decode_b1_c64" / "graph.so"
    os.truncate(graph, 100)
    ended = run_cli("artifact", "verify", copy)
    assert ended.code == 1
    assert [line.split(": ")[0] for line in ended.stdout.splitlines()] == [
        "damaged  config.json",
        "damaged  graphs/decode_b1_c64/graph.so",
    ]
    assert ended.stderr.startswith(f"error: 2 files of `{copy}` damaged\n\nhint: ")
    report = run_cli("artifact", "verify", copy, "--json", "-q")
    assert report.code == 1
    assert report.document["damaged"][0] == {"path": "config.json", "reason": "missing"}


def test_pack_and_unpack_move_an_artifact(llama: Compiled, empty_state: Path) -> None:
    packed = run_cli("artifact", "pack", llama.artifact, "tiny.tar")
    assert (packed.code, packed.stdout) == (0, "tiny.tar\n")
    again = run_cli("artifact", "pack", llama.artifact, "tiny.tar")
    assert again.code == 1 and "--force" in again.stderr
    unpacked = run_cli("artifact", "unpack", "tiny.tar", "moved", "--json")
    assert unpacked.document["artifact"] == "moved"
    assert run_cli("artifact", "verify", "moved").code == 0
    refused = run_cli("artifact", "unpack", "tiny.tar", "moved")
    assert refused.code == 1 and "`moved` is in the way" in refused.stderr
    missing = run_cli("artifact", "unpack", "none.tar", "other")
    assert missing.code == 1 and missing.stderr.startswith(
        "error: no such file: `none.tar`\n\nhint: "
    )
    assert not Path("other").exists()


def test_unpack_makes_the_folder_of_artifacts_and_pack_makes_none(
    llama: Compiled, empty_state: Path
) -> None:
    assert run_cli("artifact", "pack", llama.artifact, "tiny.tar").code == 0
    assert run_cli("artifact", "unpack", "tiny.tar", "artifacts/tiny").code == 0
    assert run_cli("artifact", "verify", "artifacts/tiny").code == 0
    refused = run_cli("artifact", "pack", llama.artifact, "none/tiny.tar")
    assert refused.code == 1
    assert refused.stderr.startswith(
        "error: cannot write `none/tiny.tar`: no such directory\n\nhint: "
    )


def test_prune_removes_leftovers_and_tells_them_before(copy: Path) -> None:
    folder = copy.parent
    leftover = folder / ".compile-x"
    leftover.mkdir()
    (leftover / "weights").write_bytes(bytes(2048))
    told = run_cli("artifact", "prune", folder, "--dry-run")
    assert told.stdout == f"{leftover}  2 KiB\n"
    assert told.stderr == "would remove 1 leftover, 2 KiB\n"
    assert leftover.exists()
    pruned = run_cli("artifact", "prune", folder, "--json")
    assert pruned.document["removed"] == [{"path": str(leftover), "size_bytes": 2048}]
    assert os.listdir(folder) == ["copy"]
