"""Unfinished copies: where they are, how long they stay, and how directories of ours are removed.

One stays as long as its root is wanted, over restarts and failures, for the next try goes on from
it. One that is wanted no more stays a while yet: an operator may ask again.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from vctl_plans.errors import PlanError
from vctl_plans.names import check_root, root_hex

_PREFIX = ".fetching-"
_KEPT_S = 3600.0
"""How long after its last write an unfinished copy stays that nobody wants."""


def unfinished(directory: Path, root: str) -> Path:
    """Return where the unfinished copy of *root* is."""
    return directory / f"{_PREFIX}{root_hex(root)}"


def scratch(directory: Path) -> Path:
    """Make a folder for what is read once and kept by nobody; one that was forgotten is strange."""
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}scratch-", dir=directory))


def remove_strange(directory: Path) -> None:
    """Remove what is named as an unfinished copy and is of no root."""
    for folder in directory.glob(f"{_PREFIX}*"):
        if not _root(folder):
            remove(folder)


def unwanted(directory: Path, wanted: Collection[str], *, now: float | None = None) -> list[str]:
    """Return the roots of the unfinished copies that nobody has wanted for a while.

    Args:
        directory: Of the artifacts.
        wanted: The roots whose unfinished copies stay, however old.
        now: The wall clock, which the files' times are of.
    """
    at = time.time() if now is None else now
    roots = {_root(folder): folder for folder in directory.glob(f"{_PREFIX}*")}
    return sorted(
        root
        for root, folder in roots.items()
        if root and root not in wanted and at - _last_write(folder) >= _KEPT_S
    )


def remove(directory: Path) -> None:
    """Remove a directory of ours, read-only or not; one that is not there is no error."""
    for folder, _, _ in os.walk(directory):
        Path(folder).chmod(0o700)
    shutil.rmtree(directory, ignore_errors=True)


def _root(folder: Path) -> str:
    """Return the root of an unfinished copy; empty: it is of none."""
    root = f"b3:{folder.name.removeprefix(_PREFIX)}"
    try:
        return check_root(root, what="root")
    except PlanError:
        return ""


def _last_write(folder: Path) -> float:
    times = [folder.stat().st_mtime]
    for at, _, names in os.walk(folder):
        times += [(Path(at) / name).lstat().st_mtime for name in names]
    return max(times)
