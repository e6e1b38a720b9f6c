"""An artifact with a manifest is fetched block by block: what is here is kept, the rest is brought.

    1 the unfinished copy of an earlier try: the blocks that have their digests stay
    2 other artifacts on this node: the blocks that they should have are copied
    3 the source: what is missing still is read, each block verified before it is written
    4 all bytes are verified on the copy; a block that is wrong after all is fetched, once

Without a manifest, a source that can be listed is copied in whole, file by file. A try that breaks
off is gone on from there too; if the whole then is not what the root names, it is copied anew.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from vctl_agent.artifacts import layout
from vctl_agent.artifacts.download import download
from vctl_agent.artifacts.reuse import Donor, copy_known
from vctl_plans import weights
from vctl_plans.errors import (
    ArtifactError,
    MalformedWeights,
    NoRoom,
    NotAllowed,
    RootMismatch,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.phase import NodePhase
from vctl_plans.sources import Source
from vctl_plans.units import bytes_text

Progress = Callable[[NodePhase, int, int], None]
"""Told (fetching or verifying, bytes done, bytes in all or 0); what it raises stops it."""

_SPARE_BYTES = 64 * 1024 * 1024
_SPARE_SHARE = 100  # a hundredth of the artifact: file systems need room for themselves


def manifest_of(
    source: Source, root: str, *, kind: weights.Kind, known: weights.Manifest | None
) -> weights.Manifest | None:
    """Return the manifest of an artifact; None: there is none, and its source can be listed.

    Args:
        source: Where the artifact is.
        root: What it must be.
        kind: What it must be.
        known: The manifest of an earlier try, for when the source is away: what is here may do.

    Raises:
        RootMismatch: The source holds another artifact.
        NotAllowed: It holds what may not be served.
        ArtifactError: It cannot be read now.
    """
    is_on_disk = source.uri.startswith("file:")
    try:
        found = source.manifest(root=root)
    except (SourceMissing, SourceRefused, NotAllowed):
        raise
    except SourceError:
        if known is None:
            raise
        found = known
    except ArtifactError as cause:
        if not is_on_disk:  # on disk the bytes are read, whatever was written beside them
            raise _not_this(source, cause) from cause
        found = None
    if found is None and not source.has_listing:
        source.files()  # says what is missing there
    if found:
        _check_kind(source, found, kind)
    return found


def fetch(
    folder: Path,
    manifest: weights.Manifest,
    source: Source,
    *,
    donors: Callable[[], Iterable[Donor]],
    progress: Progress,
) -> None:
    """Bring all blocks of an artifact into its unfinished copy, and flush them.

    Args:
        folder: The unfinished copy; kept when this raises, so that the next try goes on from it.
        manifest: Whose root is the artifact's.
        source: Where its bytes are.
        donors: Gives other artifacts on this node.
        progress: Told as it goes.

    Raises:
        RootMismatch: The source has other bytes.
        ArtifactError: They cannot be read, or written, now.
        OSError: The disk refuses.
    """
    total = sum(file.size for file in manifest.files)

    def tell(done: int) -> None:
        progress(NodePhase.FETCHING, done, total)

    tell(0)
    layout.lay_out(folder, manifest)
    blocks = tuple(weights.blocks(manifest))
    here = layout.right_blocks(folder, blocks, tell)
    done = _size(here)
    missing = [block for block in blocks if block not in here]
    if missing:
        copied = copy_known(folder, missing, donors(), lambda more: tell(done + more))
        done += _size(copied)
        missing = [block for block in missing if block not in copied]
    _bring(folder, missing, manifest, source, tell=lambda more: tell(done + more))
    layout.flush(folder, [file.path for file in manifest.files], lambda: tell(total))


def verify(
    folder: Path,
    manifest: weights.Manifest,
    source: Source,
    *,
    kind: weights.Kind,
    progress: Progress,
) -> weights.Manifest:
    """Verify the copy in whole; what was copied from a rotten artifact is fetched, once.

    Raises:
        RootMismatch: The bytes are others.
        ArtifactError: They may not be served.
    """

    def told(done: int, size: int) -> None:
        progress(NodePhase.VERIFYING, done, size)

    try:
        return weights.verify(folder, manifest, kind=kind, progress=told)
    except (RootMismatch, MalformedWeights):
        blocks = tuple(weights.blocks(manifest))
        right = layout.right_blocks(folder, blocks, lambda done: told(done, 0))
        wrong = [block for block in blocks if block not in right]
        if not wrong:
            raise  # these are the artifact's bytes, and they may not be served
    size = _size(wrong)
    _bring(
        folder,
        wrong,
        manifest,
        source,
        tell=lambda done: progress(NodePhase.FETCHING, done, size),
    )
    layout.flush(folder, dict.fromkeys(block.path for block in wrong), lambda: told(0, 0))
    return weights.verify(folder, manifest, kind=kind, progress=told)


def copy_whole(folder: Path, source: Source, *, kind: weights.Kind, progress: Progress) -> bool:
    """Copy the artifact's files, and no others, each flushed to disk.

    What an earlier try left is taken for a beginning of each file, unverified: whether it was one
    shows in the root of the whole.

    Returns:
        Whether an earlier try had left something.
    """
    listed = {file.path: file for file in source.files()}
    selected = weights.select_paths(listed, kind, label=source.uri).files
    total = sum(listed[path].size for path in selected)
    layout.make_room(folder, selected)
    done = before = sum(_length(folder / path, listed[path].size) for path in selected)
    _check_room(folder, total - before, source.uri)
    for path in selected:
        file = listed[path]
        begin = _length(folder / path, file.size)
        with layout.opened(folder, path) as fd:
            os.truncate(fd, begin)
            with closing(source.read(file, begin, file.size)) as pieces:
                for piece in pieces if begin < file.size else ():
                    begin += _written(fd, piece, begin)
                    done += len(piece)
                    progress(NodePhase.FETCHING, done, total)
            os.fsync(fd)
    return before > 0


def _length(place: Path, size: int) -> int:
    """Return how much of a file of this size an earlier try left."""
    try:
        left = place.stat().st_size
    except FileNotFoundError:
        return 0
    return left if left <= size else 0


def _written(fd: int, piece: bytes, at: int) -> int:
    done = 0
    while done < len(piece):
        done += os.pwrite(fd, piece[done:], at + done)
    return done


def is_full(error: OSError) -> bool:
    """Whether the disk, or its owner's share of it, is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def _bring(
    folder: Path,
    missing: list[weights.Block],
    manifest: weights.Manifest,
    source: Source,
    *,
    tell: layout.Tell,
) -> None:
    if not missing:
        return
    _check_room(folder, _size(missing), source.uri)
    try:
        download(folder, missing, source, manifest=manifest, tell=tell)
    except RootMismatch as mismatch:
        with contextlib.suppress(SourceError):
            now = source.manifest()
            if now and now.root != manifest.root:
                rule = f"{mismatch.message}; its manifest is of {now.root} now"
                raise RootMismatch(rule, tensors=mismatch.tensors) from mismatch
        raise


def _check_room(folder: Path, needed: int, uri: str) -> None:
    held = os.statvfs(folder)
    free = held.f_bavail * held.f_frsize
    spare = max(_SPARE_BYTES, needed // _SPARE_SHARE)
    if needed + spare > free:
        raise NoRoom(
            f"{uri}: no room on the disk of {folder.parent}: {bytes_text(needed)} are to be written"
            f" and {bytes_text(free)} are free, of which {bytes_text(spare)} are left alone"
        )


def _check_kind(source: Source, manifest: weights.Manifest, kind: weights.Kind) -> None:
    """Refuse an artifact that would be refused once it is here, before it is fetched."""
    paths = tuple(file.path for file in manifest.files)
    if weights.select_paths(paths, kind, label=source.uri).files != paths:
        raise NotAllowed(f"{source.uri}: its manifest names files that are not served ({kind})")


def _not_this(source: Source, cause: ArtifactError) -> ArtifactError:
    rule = f"{source.uri}: {cause.message}"
    return RootMismatch(rule) if isinstance(cause, RootMismatch) else ArtifactError(rule)


def _size(blocks: Iterable[weights.Block]) -> int:
    return sum(block.size for block in blocks)
