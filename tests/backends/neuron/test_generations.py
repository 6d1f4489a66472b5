"""The table of generations is the only place that names them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from config_factory import write_config
from repository import CONFIGS, DOCS, ROOT

import neuron_llm
from neuron_llm.backends.neuron.generations import (
    GENERATIONS,
    LOGICAL_NC_CONFIGS,
    PLATFORM_TARGETS,
    runs_graphs_of,
    target_of_instance,
)
from neuron_llm.quantities import shown_bytes
from neuron_llm.report.step_time.roofline import ROOFLINE_TARGETS

TABLE_FILE = Path("backends", "neuron", "generations.py")
NEW_ENTRY = """\
    "trn4": Generation(
        chip="Trainium4",
        cores="gen5",
        num_cores=4,
        core_memory_bytes=40 * GIB,
        logical_nc_configs=(1, 4),
        bytes_per_s=8e12,
        flops_per_s=2e15,
        float32_flops_per_s=1e15,
    ),
"""
# What everybody who asks for a generation makes of one that only the table knows.
WALK = """\
import json, sys
from pathlib import Path
import neuron_llm
from neuron_llm.backends.neuron.generations import runs_graphs_of
from neuron_llm.compile.options import neuron_target
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.cli.render.plan_table import plan_json
from neuron_llm.doctor.device import read_device
from neuron_llm.doctor.environment import probe_environment
from neuron_llm.doctor.host import Host
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.step_time.roofline import roofline_device

def fault(call, *args):
    try:
        call(*args)
    except NeuronLLMError as error:
        return " ".join([error.message, *getattr(error, "faults", ()), error.hint or ""])

loaded = load_config(Path("new.yaml"))
plan = plan_compile(loaded, loaded.model_spec)
root = Path("root")
host = Host(
    root=root,
    environ={},
    package_path=(),
    run=lambda argv, timeout_s: None,
    python="python",
    python_version="3.11",
)
device = read_device(host, 0, None, has_node=True)
variable = {"NEURON_PLATFORM_TARGET_OVERRIDE": "gen5", "NEURON_LOGICAL_NC_CONFIG": "4"}
core = roofline_device("trn4")
print(json.dumps({
    "package": neuron_llm.__file__,
    "lnc": plan.neuron.logical_nc_config,
    "usable_bytes": plan_json(plan, [False] * len(plan.buckets.all))["usable_bytes"],
    "arguments": neuron_target(plan.neuron).compiler_arguments(),
    "device": [device.target, device.name, device.memory_bytes],
    "variables": [
        finding.status
        for finding in probe_environment(variable, num_cpus=1, devices=[device])[:-1]
    ],
    "runs": [runs_graphs_of("trn4", "trn4"), runs_graphs_of("trn4", "trn3")],
    "roofline": [core.bytes_per_s, core.flops_per_s, core.float32_flops_per_s],
    "faults": {
        name: fault(load_config, Path(f"{name}.yaml")) for name in ("unknown", "absent", "three")
    },
    "no_figures": fault(roofline_device, "h100"),
}))
"""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the package says when its table, and no other file, has one entry more."""
    home = tmp_path_factory.mktemp("trn4")
    package = home / "neuron_llm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(neuron_llm.__file__).parent, package, ignore=ignored)
    source = (package / TABLE_FILE).read_text()
    before, table = source.split("GENERATIONS: dict[str, Generation] = {\n")
    entries, after = table.split("\n}\n", 1)
    (package / TABLE_FILE).write_text(
        f"{before}GENERATIONS: dict[str, Generation] = {{\n{entries}\n{NEW_ENTRY}}}\n{after}"
    )
    neuron = "backend: neuron\nmax_model_len: 256\nneuron_config:\n"
    write_config(home, f"{neuron}  target: trn4\n", "new.yaml")
    write_config(home, f"{neuron}  target: trn5\n", "unknown.yaml")
    write_config(home, "backend: neuron\n", "absent.yaml")
    write_config(home, f"{neuron}  target: trn4\n  logical_nc_config: 3\n", "three.yaml")
    info = home / "root/sys/devices/virtual/neuron_device/neuron0/info/architecture"
    info.mkdir(parents=True)
    (info / "instance_type").write_text("trn4.48xlarge\n")
    (info.parents[1] / "core_count").write_text("4\n")
    ended = subprocess.run(
        [sys.executable, "-c", WALK],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    said: dict[str, Any] = json.loads(ended.stdout)
    assert Path(said["package"]).is_relative_to(home)
    return said


def test_a_configuration_and_its_plan_take_a_new_generation(walked: dict[str, Any]) -> None:
    assert walked["lnc"] == 4
    assert walked["usable_bytes"] == int(4 * 40 * 2**30 * 0.9)
    assert walked["arguments"][:3] == ["--target", "trn4", "--logical-nc-config=4"]


def test_doctor_knows_a_new_generation(walked: dict[str, Any]) -> None:
    assert walked["device"] == ["trn4", "Trainium4", 4 * 40 * 2**30]
    assert walked["variables"] == ["ok", "ok"]
    assert walked["runs"] == [True, False]


def test_a_new_generation_has_a_roofline(walked: dict[str, Any]) -> None:
    # A logical core of all four.
    assert walked["roofline"] == [8e12, 2e15, 1e15]


def test_messages_name_a_new_generation(walked: dict[str, Any]) -> None:
    faults = walked["faults"]
    assert "one of `inf2`, `trn1`, `trn1n`, `trn2`, `trn3` and `trn4`;" in faults["unknown"]
    assert "`target: trn2` (or `inf2`, `trn1`, `trn1n`, `trn3`, `trn4`)" in faults["absent"]
    assert "3 must be 1 or 4 for `target: trn4`; write 4" in faults["three"]
    assert "`trn4`" in walked["no_figures"]


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (DOCS / "neuron.md").read_text()
    rows = re.findall(r"^\| `((?:inf|trn)\d\w*)` \| (.+) \|$", text, re.MULTILINE)
    assert dict(rows) == {
        name: " | ".join(
            (
                generation.chip,
                generation.cores,
                str(generation.num_cores),
                shown_bytes(generation.core_memory_bytes),
                " or ".join(map(str, generation.logical_nc_configs)),
            )
        )
        for name, generation in GENERATIONS.items()
    }
    assert f"--target {'|'.join(ROOFLINE_TARGETS)}`" in (DOCS / "bucket-report.md").read_text()


def test_no_other_code_names_a_generation() -> None:
    """The fault: a list of generations beside the table, which the next one is missing from."""
    # A comment or a docstring may give one as an example, and so may the configurations.
    package = ROOT / "neuron_llm"
    literal = re.compile(r"(?<!`)[\"'](?:inf|trn)\d\w*[\"']")
    naming = {
        path.relative_to(package)
        for path in package.rglob("*.py")
        if literal.search(path.read_text())
    }
    assert naming == {TABLE_FILE}
    assert all(
        re.search(rf"target: ({'|'.join(GENERATIONS)})$", path.read_text(), re.MULTILINE)
        for path in CONFIGS.glob("*.yaml")
        if "backend: neuron" in path.read_text()
    )


def test_which_graphs_run_where() -> None:
    assert runs_graphs_of("trn1", "inf2") and runs_graphs_of("inf2", "trn1n")
    assert not runs_graphs_of("trn2", "trn1") and not runs_graphs_of("trn3", "trn2")
    # What is newer than the table runs its own graphs at most.
    assert runs_graphs_of("trn9", "trn9") and not runs_graphs_of("trn9", "trn3")


def test_names_that_follow_from_the_table() -> None:
    assert PLATFORM_TARGETS == ("inf2", "trn1", "trn1n", "gen2", "trn2", "gen3", "trn3", "gen4")
    assert LOGICAL_NC_CONFIGS == (1, 2)
    said = ["trn2.48xlarge", "Trn2", "inf2.xlarge", "inf1.xlarge", "c7a.xlarge", "", None]
    assert list(map(target_of_instance, said)) == ["trn2", "trn2", "inf2", None, None, None, None]


@pytest.mark.parametrize("name", GENERATIONS)
def test_every_logical_core_is_part_of_its_chip(name: str) -> None:
    generation = GENERATIONS[name]
    for count in generation.logical_nc_configs:
        assert generation.num_cores % count == 0
    assert generation.float32_flops_per_s < generation.flops_per_s
