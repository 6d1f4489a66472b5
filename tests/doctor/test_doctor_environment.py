"""Environment variables: shown as they are, and held against the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.doctor.device import Device
from neuron_llm.doctor.environment import VARIABLES, probe_environment, shown_variables
from neuron_llm.doctor.finding import Finding, Status


def device(num_cores: int | None) -> Device:
    return Device(
        index=0,
        name="Inferentia2",
        target="inf2",
        num_cores=num_cores,
        logical_nc_config=None,
        memory_bytes=None,
        processes=(),
        has_node=True,
    )


def probe(**environ: str) -> dict[str, Finding]:
    findings = probe_environment(environ, num_cpus=4, devices=[device(2), device(2)])
    return {finding.subject: finding for finding in findings}


def test_set_variables_are_shown_with_value_and_meaning_the_others_by_name() -> None:
    findings = probe(OMP_NUM_THREADS="2", HOME="/root")
    assert findings["OMP_NUM_THREADS"].text == "`2` (threads of a graph on the CPU)"
    assert findings["OMP_NUM_THREADS"].status is Status.OK
    assert "HOME" not in findings
    unset = findings["not set"].text.split(", ")
    assert set(unset) == set(VARIABLES) - {"OMP_NUM_THREADS"}


def test_unknown_variables_of_the_runtime_are_shown_too() -> None:
    findings = probe(NEURON_RT_EXEC_TIMEOUT="30")
    assert findings["NEURON_RT_EXEC_TIMEOUT"].text == "`30`"
    assert shown_variables({"NEURON_X": "1"})["NEURON_X"] == "1"


@pytest.mark.parametrize(
    ("name", "value", "status", "text"),
    [
        ("OMP_NUM_THREADS", "4,2", Status.OK, "threads of a graph"),
        ("OMP_NUM_THREADS", "8", Status.NOTE, "more threads than the 4 processors"),
        ("OMP_NUM_THREADS", "0", Status.PROBLEM, "not a number of threads"),
        ("OMP_NUM_THREADS", "all", Status.PROBLEM, "not a number of threads"),
        ("OMP_NUM_THREADS", "9" * 5000, Status.PROBLEM, "not a number of threads"),
        ("GOMP_SPINCOUNT", "1000", Status.OK, "1000 unless you set it"),
        ("GOMP_SPINCOUNT", "infinite", Status.NOTE, "keep a processor busy"),
        ("GOMP_SPINCOUNT", "300000", Status.NOTE, "keep a processor busy"),
        ("OMP_WAIT_POLICY", "ACTIVE", Status.NOTE, "keep a processor busy"),
        ("OMP_WAIT_POLICY", "passive", Status.OK, "spins at all"),
        ("HF_HUB_OFFLINE", "1", Status.NOTE, "no model is fetched"),
        ("HF_HUB_OFFLINE", "0", Status.OK, "no model is fetched"),
        ("NEURON_RT_VISIBLE_CORES", "0-3", Status.OK, "this process may use"),
        ("NEURON_RT_VISIBLE_CORES", "0,2", Status.OK, "this process may use"),
        ("NEURON_RT_VISIBLE_CORES", "0-4", Status.PROBLEM, "core 4 does not exist; there are 4"),
        ("NEURON_RT_VISIBLE_CORES", "all", Status.PROBLEM, "not a list of cores"),
        ("NEURON_RT_NUM_CORES", "0", Status.OK, "reserves"),
        ("NEURON_RT_NUM_CORES", "5", Status.PROBLEM, "more cores than the 4"),
        ("NEURON_RT_NUM_CORES", "-1", Status.PROBLEM, "not a number of cores"),
        ("NEURON_LOGICAL_NC_CONFIG", "2", Status.OK, "physical cores"),
        ("NEURON_LOGICAL_NC_CONFIG", "3", Status.PROBLEM, "neither 1 nor 2"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2", Status.OK, "compiled for"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "inf1", Status.PROBLEM, "not a target"),
        ("NEURON_CC_FLAGS", "-O1 --lnc=2", Status.OK, "flags of neuronx-cc"),
    ],
)
def test_values_that_cannot_be_meant(name: str, value: str, status: Status, text: str) -> None:
    finding = probe(**{name: value})[name]
    assert finding.status is status
    assert finding.text.startswith(f"`{value}`")
    assert text in finding.text
    assert not finding.is_decisive
    assert (finding.hint is None) is (status is Status.OK)


def test_visible_cores_win_over_their_number() -> None:
    finding = probe(NEURON_RT_VISIBLE_CORES="0", NEURON_RT_NUM_CORES="2")["NEURON_RT_VISIBLE_CORES"]
    assert (finding.status, finding.text) == (
        Status.NOTE,
        "`0`: wins over `NEURON_RT_NUM_CORES`",
    )


def test_a_short_spin_makes_an_active_wait_harmless() -> None:
    findings = probe(OMP_WAIT_POLICY="active", GOMP_SPINCOUNT="1000")
    assert findings["OMP_WAIT_POLICY"].status is Status.OK


@pytest.mark.parametrize("devices", [[], [device(None)], [device(2), device(None)]])
def test_without_a_count_of_cores_no_core_is_called_wrong(devices: list[Device]) -> None:
    environ = {"NEURON_RT_VISIBLE_CORES": "9", "NEURON_RT_NUM_CORES": "9"}
    findings = probe_environment(environ, num_cpus=1, devices=devices)
    assert not any(finding.status is Status.PROBLEM for finding in findings)


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.text()))
def test_any_value_is_a_finding(environ: dict[str, str]) -> None:
    findings = probe(**environ)
    assert set(findings) - {"not set"} == set(environ)
