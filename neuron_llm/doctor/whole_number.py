"""Numbers in text that anybody may have written."""

from __future__ import annotations

import re

# As many digits as the sizes of memory in bytes have, with room to spare.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")


def whole_number(text: str | None) -> int | None:
    """Return the number that a text is, white space aside, or None if it is none."""
    match = _WHOLE_NUMBER.fullmatch((text or "").strip())
    return int(match.group()) if match else None
