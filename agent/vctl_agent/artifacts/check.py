"""Hash a staged artifact again, in a process of its own.

    python -m vctl_agent.artifacts.check PATH ROOT MANIFEST [--kind KIND] [--background]

A process, so that hashing takes neither the agent's time nor its memory, and so that the scrub can
run at the lowest priority and past the page cache, which is the engine's. It prints one `Finding`.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import get_args

import msgspec

from vctl_agent.artifacts.apart import said_by
from vctl_plans import weights
from vctl_plans.errors import ArtifactError

_LOWEST_PRIORITY = 19


class Finding(msgspec.Struct, frozen=True):
    """What was found."""

    size_bytes: int = 0
    problem: str = ""  # what differs; empty: the bytes are those of the root


def check(
    path: Path, root: str, manifest: Path, *, kind: weights.Kind, is_background: bool
) -> Finding:
    """Hash the artifact at *path*, and compare it with *root*.

    Args:
        path: Where it lies.
        root: What it should be.
        manifest: Its manifest, to name what differs; it need not be there.
        kind: What it must be.
        is_background: Leave processor and page cache to others.
    """
    try:
        expected: str | weights.Manifest = weights.load(manifest, root=root)
    except ArtifactError:
        expected = root
    threads = 1 if is_background else None
    try:
        found = weights.verify(path, expected, kind=kind, threads=threads, direct=is_background)
    except ArtifactError as problem:
        return Finding(problem=problem.message)
    return Finding(size_bytes=sum(file.size for file in found.files))


async def check_apart(
    path: Path, root: str, manifest: Path, *, kind: weights.Kind, is_background: bool
) -> Finding:
    """Do `check` in a process of its own; cancelled, it ends that process.

    Raises:
        ArtifactError: The process did not say what it found.
    """
    arguments = [str(path), root, str(manifest), "--kind", kind]
    flags = ["--background"] if is_background else []
    return await said_by(__name__, [*arguments, *flags], Finding, subject=str(path))


def main() -> None:
    """Check what the command line names, and print the finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("root")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--kind", choices=get_args(weights.Kind), default="adapter")
    parser.add_argument("--background", action="store_true")
    given = parser.parse_args()
    if given.background:
        os.nice(_LOWEST_PRIORITY)
    finding = check(
        given.path,
        given.root,
        given.manifest,
        kind=given.kind,
        is_background=given.background,
    )
    sys.stdout.write(msgspec.json.encode(finding).decode())


if __name__ == "__main__":
    main()
