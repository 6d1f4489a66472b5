"""Damage as disks and copies do it: a file that is cut off, or in which bits have flipped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_FLIPPED_BITS = 3


@contextmanager
def damaged(path: Path, rng: random.Random) -> Iterator[None]:
    """Damage a file for as long as the block takes."""
    content = path.read_bytes()
    path.write_bytes(cut_off(content, rng) if rng.random() < 0.3 else flipped(content, rng))
    try:
        yield
    finally:
        path.write_bytes(content)


def cut_off(content: bytes, rng: random.Random) -> bytes:
    """Return a beginning; as often a byte short as anything else."""
    length = len(content) - 1 if rng.random() < 0.5 else rng.randrange(len(content))
    return content[:length]


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one to three of its bits flipped."""
    data = bytearray(content)
    bits = rng.sample(range(8 * len(data)), rng.randint(1, MAX_FLIPPED_BITS))
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)
