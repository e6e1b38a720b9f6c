"""Unfinished copies: where they are, how long they stay, and how directories of ours are removed.

One stays over restarts and failures, for the next try goes on from it. Once nothing wants it any
more, `vctl_plans.retention` gives it up.
"""

import os
import shutil
import tempfile
from pathlib import Path

from vctl_plans.errors import PlanError
from vctl_plans.names import check_root, root_hex

_PREFIX = ".fetching-"


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
