"""The two sides of a comparison: which tensors a path holds, and reading them while files change.

Everything that `scan` refuses is refused here too, in the same words: broken headers, shards that
do not fit their index, links, pickles. A file must keep the stamp that it had when its header was
read, whenever it is opened and at the end.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from vctl_plans.errors import NotAllowed

from . import files, selection
from .files import Source, Stamp
from .safetensors import Tensor
from .survey import survey


class Placed(NamedTuple):
    """A tensor, and the file that it is in."""

    path: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Side:
    """One side, open.

    Args:
        source: Its directory.
        stamps: Of each safetensors file.
        tensors: By name, in the order of the files and of the data in them.
    """

    source: Source
    stamps: Mapping[str, Stamp]
    tensors: Mapping[str, Placed]

    def check_unchanged(self) -> None:
        """Require that no file was written since its header was read.

        Raises:
            ArtifactError: One was.
        """
        for path, stamp in self.stamps.items():
            files.check_unchanged(self.source, path, stamp)


@contextmanager
def open_side(path: str | os.PathLike[str], *, max_header_bytes: int) -> Iterator[Side]:
    """Read the headers of a file or a directory, and keep the directory open.

    Raises:
        NotAllowed: It holds no safetensors, or what may not be there.
        MalformedWeights: A header is broken, or shards and index disagree.
        ArtifactError: It can't be read.
    """
    with files.open_source(path) as source:
        selected = selection.select(source, None)
        stamps = {name: files.stamp_at(source, name) for name in selected.files}
        surveyed = survey(source, selected, stamps, max_header_bytes)
        headers = {file.path: file.header for file in surveyed if file.header is not None}
        if not headers:
            raise NotAllowed(f"{source.display(source.single)}: holds no safetensors")
        tensors = {
            tensor.name: Placed(name, tensor)
            for name, header in headers.items()
            for tensor in header.tensors
        }
        yield Side(source, {name: stamps[name] for name in headers}, tensors)


class Reader:
    """Reads blocks of one side in one thread; keeps the last file open."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._path = ""
        self._fd = -1

    def fill(self, view: memoryview, placed: Placed, offset: int) -> None:
        """Read into the whole of *view* what is *offset* bytes into a tensor.

        Raises:
            ArtifactError: The file changed, or can't be read.
        """
        shown = self._side.source.display(placed.path)
        if placed.path != self._path:
            self.close()
            self._fd = files.open_file(self._side.source, placed.path)
            self._path = placed.path
            stamp = self._side.stamps[placed.path]
            files.check_same(stamp, files.stamp_of(self._fd), path=shown)
        files.fill(self._fd, view, placed.tensor.begin + offset, path=shown)

    def close(self) -> None:
        """Close what is open."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, ""
