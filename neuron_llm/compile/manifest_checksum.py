"""A manifest's checksum of its own text: its last value, so that no byte of it goes unchecked.

It is the sha256 of the whole text with zeros in place of its 64 digits.
"""

from __future__ import annotations

import hashlib

NO_CHECKSUM = "0" * 64
_KEY = b'"checksum": "'
_END = b'"\n}\n'


def sealed(text: bytes) -> bytes:
    """Return a manifest's text with its checksum; it ends with the key and any 64 digits."""
    head, digits = _split(text)
    assert len(digits) == len(NO_CHECKSUM), "the checksum is the last value of a manifest"
    digest = hashlib.sha256(head + NO_CHECKSUM.encode() + _END).hexdigest()
    return head + digest.encode() + _END


def is_sealed(text: bytes) -> bool:
    """Whether a text has its own checksum, byte for byte."""
    _, digits = _split(text)
    return len(digits) == len(NO_CHECKSUM) and sealed(text) == text


def _split(text: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the digits, and the digits; none where they do not belong."""
    start = len(text) - len(_END) - len(NO_CHECKSUM)
    if start < 0 or not text.endswith(_END) or not text[:start].endswith(_KEY):
        return text, b""
    return text[:start], text[start : -len(_END)]
