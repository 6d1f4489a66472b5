"""How much memory the processes of a group hold, as Linux tells it in `/proc`."""

from __future__ import annotations

import os
from pathlib import Path

# Of `/proc/<pid>/stat`, counted behind the name, which is in brackets and may contain spaces.
_GROUP_FIELD = 2
_RESIDENT_PAGES_FIELD = 21


def group_memory_bytes(process_group: int) -> int:
    """Return the resident memory of every process of a group; what they share counts for each."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # It has ended meanwhile.
        if int(fields[_GROUP_FIELD]) == process_group:
            pages += int(fields[_RESIDENT_PAGES_FIELD])
    return pages * os.sysconf("SC_PAGE_SIZE")
