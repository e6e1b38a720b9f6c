"""Paths of Unix sockets, however deep their folder lies.

`sockaddr_un` holds 107 bytes (unix(7)). A longer path is reached through its folder, opened: Linux
names that in a few bytes (proc(5)), and the socket lies where it was asked for all the same.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_BYTES = 107


@contextmanager
def within_reach(path: Path) -> Iterator[str]:
    """Give a name by which *path* can be bound or connected to, for as long as it is held.

    Raises:
        OSError: The folder is not there, or may not be opened.
    """
    if len(os.fsencode(path)) <= _MOST_BYTES:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
