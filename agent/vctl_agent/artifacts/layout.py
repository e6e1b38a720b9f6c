"""The unfinished copy of an artifact: files at their sizes, and which of their blocks are right.

It is `<artifacts>/.fetching-<root>`, kept over restarts and crashes. Nothing says what of it was
written but its bytes: a block counts once its digest was computed from them. So it does not matter
at which instruction a process was killed, or what a power cut left.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from vctl_plans.errors import NotAllowed
from vctl_plans.weights import Block, Manifest
from vctl_plans.weights.workers import Work, run

PIECE_BYTES = 1024 * 1024

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OWN_FILE = 0o600
_OWN_FOLDER = 0o700

Tell = Callable[[int], None]
"""Told the bytes done so far; what it raises stops the work."""


def lay_out(folder: Path, manifest: Manifest) -> None:
    """Make a folder that holds the manifest's files at their sizes, and nothing else.

    What their bytes are is left as it is; those that were never written take no room.
    """
    wanted = {file.path: file.size for file in manifest.files}
    make_room(folder, wanted)
    for path, size in wanted.items():
        with opened(folder, path) as fd:
            if os.fstat(fd).st_size != size:
                os.ftruncate(fd, size)


def make_room(folder: Path, paths: Collection[str]) -> None:
    """Make a folder for some files, their own folders in it; of what is there only they stay."""
    folder.mkdir(exist_ok=True)
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    if folders.intersection(paths):
        raise NotAllowed(f"{folder.name}: a file is named that is a folder as well")
    _clear(folder, set(paths), folders)
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def opened(folder: Path, path: str) -> Iterator[int]:
    """Open a file of the unfinished copy to read and write it."""
    fd = os.open(folder / path, _FLAGS, _OWN_FILE)
    try:
        yield fd
    finally:
        os.close(fd)


def flush(folder: Path, paths: Iterable[str], still: Callable[[], None]) -> None:
    """Bring files to the disk; `still` is called after each, and may raise to stop."""
    for path in paths:
        with opened(folder, path) as fd:
            os.fsync(fd)
        still()


def right_blocks(folder: Path, blocks: Sequence[Block], tell: Tell) -> set[Block]:
    """Return which of the blocks the folder's files hold; holes are not read."""
    written = [block for block in blocks if block.size]
    work = _Checking(folder, written)
    threads = min(len(os.sched_getaffinity(0)), len(written))
    run(work, threads=threads, name="check", progress=tell)
    return work.right


class _Checking(Work):
    """Hashes blocks, a file at a time: threads take the next 64 of one file."""

    _AT_ONCE = 64

    def __init__(self, folder: Path, blocks: Sequence[Block]) -> None:
        super().__init__()
        self._folder = folder
        by_path: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            by_path[block.path].append(block)
        self._shares = [
            share[at : at + self._AT_ONCE]
            for share in by_path.values()
            for at in range(0, len(share), self._AT_ONCE)
        ]
        self.right: set[Block] = set()

    def share(self) -> None:
        while not self.stopped:
            with self.lock:
                if not self._shares:
                    return
                blocks = self._shares.pop(0)
            with opened(self._folder, blocks[0].path) as fd:
                for block in blocks:
                    self._check(fd, block)

    def _check(self, fd: int, block: Block) -> None:
        if self.stopped:
            return
        is_right = not _is_hole(fd, block) and digest(fd, block) == block.digest
        with self.lock:
            if is_right:
                self.right.add(block)
                self.bytes_done += block.size


def digest(fd: int, block: Block) -> bytes:
    """Hash a block of an open file; of what is there, should the file end before."""
    hashed = blake3()
    for at in range(block.begin, block.end, PIECE_BYTES):
        hashed.update(os.pread(fd, min(PIECE_BYTES, block.end - at), at))
    return hashed.digest()


def _is_hole(fd: int, block: Block) -> bool:
    """Whether nothing was ever written there; where a file system does not tell, all was."""
    try:
        return os.lseek(fd, block.begin, os.SEEK_DATA) >= block.end
    except OSError:  # ENXIO: nothing but a hole up to the end of the file
        return True


def _clear(folder: Path, files: set[str], folders: set[str]) -> None:
    """Remove what does not belong, and open up what an earlier try had made read-only."""
    for at, _, _ in os.walk(folder):
        Path(at).chmod(_OWN_FOLDER)
    for at, below, names in os.walk(folder, topdown=False):
        here = Path(at)
        relative = here.relative_to(folder)
        for name in [*names, *below]:
            path, place = str(relative / name), here / name
            if place.is_symlink() or (name in names and path not in files):
                place.unlink()
            elif name in names:
                place.chmod(_OWN_FILE)
            elif path not in folders:
                place.rmdir()
