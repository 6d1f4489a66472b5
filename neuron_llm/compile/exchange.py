"""Two directories change places in one step, where the system can."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

# Of Linux's `fcntl.h` and `stdio.h`.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(first: Path, second: Path) -> bool:
    """Let two existing paths change places; return whether the system and its disk can do that.

    Raises:
        OSError: they can, and refused it.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_HERE:
        return False
    raise OSError(code, os.strerror(code), str(second))
