"""Decode steps by rows and context."""

from __future__ import annotations

from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy, DecodeShape


def test_contexts_are_rounded_to_what_a_bucket_can_tell() -> None:
    occupancy = DecodeOccupancy()
    for longest in (2, 128, 129):
        occupancy.add(3, longest)
    occupancy.add(1, 256, num_steps=5)
    assert occupancy.counts == {
        DecodeShape(3, 128): 2,
        DecodeShape(3, 256): 1,
        DecodeShape(1, 256): 5,
    }
    assert occupancy.num_steps == 8
    assert list(occupancy.by_num_seqs.items()) == [(1, 5), (3, 3)]
    assert list(occupancy.by_context.items()) == [(128, 2), (256, 6)]
    assert occupancy.mean_num_seqs == (5 + 9) / 8


def test_the_json_has_every_shape_in_order() -> None:
    occupancy = DecodeOccupancy()
    occupancy.add(2, 100)
    occupancy.add(1, 300)
    assert occupancy.to_json() == {
        "num_decode_steps": 2,
        "mean_num_seqs": 1.5,
        "num_seqs": [{"num_seqs": 1, "num_steps": 1}, {"num_seqs": 2, "num_steps": 1}],
        "context_tokens": [
            {"context_tokens": 128, "num_steps": 1},
            {"context_tokens": 384, "num_steps": 1},
        ],
        "shapes": [
            {"num_seqs": 1, "context_tokens": 384, "num_steps": 1},
            {"num_seqs": 2, "context_tokens": 128, "num_steps": 1},
        ],
    }


def test_without_decodes_there_is_no_mean() -> None:
    assert DecodeOccupancy().mean_num_seqs is None
    assert DecodeOccupancy().num_steps == 0
