"""Who may open a device node."""

from __future__ import annotations

import grp
import stat
from pathlib import Path

_READ_AND_WRITE = stat.S_IRGRP | stat.S_IWGRP


def group_that_can_open(path: Path) -> str | None:
    """Return the group whose members can read and write a file; None if only root can."""
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_mode & _READ_AND_WRITE != _READ_AND_WRITE or status.st_gid == 0:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        # A container need not know the names of its host's groups.
        return str(status.st_gid)
