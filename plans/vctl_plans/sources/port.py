"""One place that holds an artifact: listed, read by ranges, written to; the same for every kind.

A `Source` is one look at one place, for one try: what it has seen of a file (its ETag, its stamp)
it expects to see again, and `FileChanged` tells that it did not. It never retries, and it does not
verify: whoever reads compares the bytes with the manifest, and the manifest with the root.

The manifest has the same name everywhere. Of a folder it is `vctl.manifest.json` in it; of a single
file it is `FILE.vctl.manifest.json` beside it.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Generator
from types import TracebackType
from typing import BinaryIO, Final, Self

import msgspec

from vctl_plans.errors import NotAllowed
from vctl_plans.weights import Manifest, decode, encode
from vctl_plans.weights.selection import MANIFEST_NAME, unsafe_path

MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
"""Of a manifest that is read from elsewhere: enough for 4 TiB of weights."""

CHUNK_BYTES: Final = 256 * 1024
"""About what one piece of a read holds."""


class Entry(msgspec.Struct, frozen=True):
    """A file at a source."""

    path: str  # from the source, with ``/``
    size: int  # in bytes
    version: str = ""  # changes with its bytes (an ETag, a stamp); empty: not known


class Source(ABC):
    """A place that holds one artifact, or is to hold it.

    Args:
        uri: Where it is; safe to show.
    """

    has_listing = True  # else `files` needs the manifest

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @abstractmethod
    def manifest_document(self) -> bytes | None:
        """Read the manifest that lies beside the artifact; None when there is none.

        Raises:
            ArtifactError: It cannot be told, or read.
        """

    def manifest(self, *, root: str = "") -> Manifest | None:
        """Read and check the manifest; see `weights.decode`.

        Raises:
            RootMismatch: It is of another root.
            ArtifactError: It is no manifest, or cannot be read.
        """
        document = self.manifest_document()
        return None if document is None else decode(document, root=root)

    @abstractmethod
    def files(self) -> tuple[Entry, ...]:
        """List what is there, by path; not only what belongs to the artifact.

        Raises:
            SourceMissing: There is nothing.
            ArtifactError: It cannot be listed.
        """

    @abstractmethod
    def read(self, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """Read the bytes [begin, end) of a file, in pieces; close the iterator to end it early.

        Raises:
            FileChanged: It is not the file that was listed, or read before.
            SourceMissing: There is no such file.
            SourceRefused: We may not read it.
            SourceError: It cannot be read now.
        """

    def has_ranges(self, file: Entry) -> bool:  # noqa: ARG002  some servers differ by file
        """Whether a read that begins later costs less than one from the beginning."""
        return True

    @abstractmethod
    def write(self, path: str, content: BinaryIO, *, size: int) -> None:
        """Write a file below the source; what is not whole is not there.

        Args:
            path: From the source, which is a folder then.
            content: Read to its end.
            size: How many bytes that is.

        Raises:
            SourceRefused: We may not write there.
            SourceError: It cannot be written now.
        """

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, after all files: where it is, they are."""
        document = encode(manifest)
        self.write(MANIFEST_NAME, io.BytesIO(document), size=len(document))

    def abort(self) -> None:  # noqa: B027  not every kind has something to break
        """Have reads in other threads fail soon; the source is of no use after that."""

    def close(self) -> None:  # noqa: B027  nor something to let go of
        """Let go of what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_path(path: str, where: str) -> str:
    """Return a path that may be used below a source.

    Raises:
        NotAllowed: It leads out, or cannot be kept.
    """
    rule = unsafe_path(path)
    if rule:
        raise NotAllowed(f"{where}: the path {path!a} {rule}")
    return path
