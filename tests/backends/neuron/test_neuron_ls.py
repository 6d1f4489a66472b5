"""Whatever `neuron-ls` prints is a list of devices, or none."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.backends.neuron.neuron_ls import parse_listing


def test_a_listing_leaves_out_what_it_does_not_say() -> None:
    devices = parse_listing('[{"neuron_device": 3, "nc_count": null, "neuron_processes": null}]')
    assert devices is not None
    (device,) = devices
    assert (device.index, device.num_cores, device.processes) == (3, None, ())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.text())
def test_any_text_is_a_listing_or_none(text: str) -> None:
    parse_listing(text)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["neuron_device", "nc_count", "memory_size", "neuron_processes", "instance_type"]
            ),
            json_values,
        )
        | json_values
    )
)
def test_any_json_is_a_listing_or_none(entries: list[Any]) -> None:
    devices = parse_listing(json.dumps(entries))
    for device in devices or ():
        assert device.index >= 0
        assert device.memory_bytes is None or device.memory_bytes >= 0
