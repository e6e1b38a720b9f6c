"""Are these the bytes that a root names?"""

import os

from vctl_plans.errors import RootMismatch

from .diff import Difference, diff
from .manifest import Manifest
from .safetensors import MAX_HEADER_BYTES
from .scan import Progress, scan
from .selection import Kind

_NAMED_AT_MOST = 5


def verify(
    path: str | os.PathLike[str],
    expected: str | Manifest,
    *,
    kind: Kind | None = None,
    threads: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
    direct: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Read an artifact in whole and compare it with what it should be.

    Args:
        path: A directory, or one file.
        expected: An artifact root, or a manifest: then what differs is named.
        kind: What the artifact must be; the manifest's, or told from the files, when None.
        threads: See `scan`.
        max_header_bytes: See `scan`.
        direct: See `scan`.
        progress: See `scan`.

    Returns:
        The manifest of the bytes at `path`; its root is the expected one.

    Raises:
        RootMismatch: The bytes are others.
        ArtifactError: As `scan` does.
    """
    if isinstance(expected, Manifest):
        kind = kind or expected.kind
    actual = scan(
        path,
        kind=kind,
        threads=threads,
        max_header_bytes=max_header_bytes,
        direct=direct,
        progress=progress,
    )
    if isinstance(expected, str):
        if actual.root != expected:
            raise _mismatch_of_root(path, expected, actual)
    elif actual.root != expected.root:
        raise _mismatch(path, diff(expected, actual))
    return actual


def _mismatch_of_root(
    path: str | os.PathLike[str], expected: str, actual: Manifest
) -> RootMismatch:
    hint = "the manifest of the expected root would tell what differs"
    if actual.content_root == expected:
        hint = "what was given is its content root; give the artifact root"
    return RootMismatch(f"{path}: its root is {actual.root}, not {expected}", hint=hint)


def _mismatch(path: str | os.PathLike[str], differences: tuple[Difference, ...]) -> RootMismatch:
    named = "; ".join(str(difference) for difference in differences[:_NAMED_AT_MOST])
    more = len(differences) - _NAMED_AT_MOST
    rest = f"; and {more} more" if more > 0 else ""
    subjects = dict.fromkeys(difference.tensor or difference.path for difference in differences)
    return RootMismatch(f"{path}: {named}{rest}", tensors=tuple(subjects))
