"""`http://` and `https://`: any web server that serves files.

Such a server cannot be listed, so the files are those of the manifest. It lies where it lies on
disk: below the URL of a folder (`URL/vctl.manifest.json`), beside that of a file
(`URL.vctl.manifest.json`); the first is asked for first. Bytes are asked for by range. A server
that knows no ranges answers with the whole, of which the beginning is skipped.
"""

import re
import threading
from collections.abc import Generator, Iterator
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

import httpx

from vctl_plans.errors import FileChanged, SourceError, SourceMissing
from vctl_plans.location import shown
from vctl_plans.weights import decode
from vctl_plans.weights.selection import MANIFEST_NAME, MANIFEST_SUFFIX

from .credentials import Credentials
from .port import CHUNK_BYTES, MAX_MANIFEST_BYTES, Entry, Source, check_path
from .web import Web, check_status

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")  # RFC 9110 section 14.4
_PARTIAL = 206


class HttpSource(Source):
    """A folder or a file on a web server.

    Args:
        uri: Its URL.
        credentials: What lets us in there.
    """

    has_listing = False

    def __init__(self, uri: str, credentials: Credentials) -> None:
        super().__init__(uri)
        self._base = uri.rstrip("/")
        self._may_be_file = not uri.endswith("/")
        self._folder = self._base
        self._web = Web(credentials.header(uri))
        self._files = RangedFiles(self._web)

    def manifest_document(self) -> bytes | None:
        """See `Source.manifest_document`; it also tells whether the URL is a folder's."""
        document = self._web.get(f"{self._base}/{MANIFEST_NAME}", limit=MAX_MANIFEST_BYTES)
        if document is None and self._may_be_file:
            beside = self._base + MANIFEST_SUFFIX
            document = self._web.get(beside, limit=MAX_MANIFEST_BYTES)
            if document is not None:
                self._folder = self._base.rpartition("/")[0]
        return document

    def files(self) -> tuple[Entry, ...]:
        """See `Source.files`; here the manifest's files, which are read from it."""
        document = self.manifest_document()
        if document is None:
            raise SourceMissing(
                f"{self.uri}: has no {MANIFEST_NAME}, and a web server cannot be listed",
                hint="write one with `vctl manifest`, and put it beside the files",
            )
        return tuple(Entry(file.path, file.size) for file in decode(document).files)

    def read(self, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """See `Source.read`."""
        return self._files.read(self._url(file.path), file, begin, end)

    def has_ranges(self, file: Entry) -> bool:
        """See `Source.has_ranges`: asks for one byte."""
        return self._files.has_ranges(self._url(file.path))

    def write(self, path: str, content: BinaryIO, *, size: int) -> None:
        """See `Source.write`; by PUT, which the server makes whole or not at all."""
        url = self._url(path)
        headers = {"Content-Length": str(size)}
        pieces = iter(lambda: content.read(CHUNK_BYTES), b"")
        with self._web.stream("PUT", url, headers=headers, content=pieces) as response:
            check_status(response, url)

    def abort(self) -> None:
        """See `Source.abort`."""
        self._web.abort()

    def close(self) -> None:
        """See `Source.close`."""
        self._web.close()

    def _url(self, path: str) -> str:
        return f"{self._folder}/{quote(check_path(path, self.uri))}"


class _Version(NamedTuple):
    """What tells one content of a URL from another."""

    tag: str  # ETag, else Last-Modified; empty where there is neither
    size: int


class RangedFiles:
    """Reads ranges of URLs, and notices a file that is another than before.

    Args:
        web: The client.
    """

    def __init__(self, web: Web) -> None:
        self._web = web
        self._lock = threading.Lock()
        self._seen: dict[str, _Version] = {}  # by URL

    def read(self, url: str, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """Read the bytes [begin, end) of the file at *url*; see `Source.read`."""
        if begin >= end:
            return
        headers = {"Range": f"bytes={begin}-{end - 1}"}
        seen = self._seen.get(url)
        if seen and seen.tag.startswith('"'):  # a weak tag may not stand there: RFC 9110 13.1.5
            headers["If-Range"] = seen.tag
        with self._web.stream("GET", url, headers=headers) as response:
            check_status(response, url)
            at, size = _extent(response, url)
            self._check(url, _Version(_tag(response), size if size >= 0 else file.size), file)
            if at > begin:
                raise SourceError(f"{shown(url)}: the server answers with another range")
            pieces = response.iter_raw(CHUNK_BYTES)
            yield from _between(pieces, begin - at, end - begin, where=shown(url))

    def has_ranges(self, url: str) -> bool:
        """Whether the server answers with a part when it is asked for one."""
        with self._web.stream("GET", url, headers={"Range": "bytes=0-0"}) as response:
            check_status(response, url)
            is_partial = response.status_code == _PARTIAL
            if is_partial:
                response.read()  # of one byte: the connection can be used again
            return is_partial

    def _check(self, url: str, found: _Version, file: Entry) -> None:
        if found.size != file.size:
            raise FileChanged(
                f"{shown(url)}: has {found.size} bytes, and not {file.size}",
                hint="is it being uploaded, or is the manifest of an earlier version?",
            )
        with self._lock:
            before = self._seen.setdefault(url, found)
        if before != found:
            raise FileChanged(
                f"{shown(url)}: changed while it was read (its ETag or date is another)",
                hint="an artifact never changes: put a new version at a place of its own",
            )


def _extent(response: httpx.Response, url: str) -> tuple[int, int]:
    """Return at which byte an answer begins, and the file's size; -1: it does not tell."""
    if response.status_code != _PARTIAL:
        return 0, int(response.headers.get("Content-Length", "-1"))
    said = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not said:
        raise SourceError(f"{shown(url)}: the server does not say which range it answers with")
    return int(said[1]), -1 if said[3] == "*" else int(said[3])


def _tag(response: httpx.Response) -> str:
    headers = response.headers
    return str(headers.get("ETag") or headers.get("Last-Modified") or "")


def _between(pieces: Iterator[bytes], skip: int, size: int, *, where: str) -> Generator[bytes]:
    """Yield *size* bytes of *pieces*, after the first *skip*."""
    for piece in pieces:
        wanted = piece[skip : skip + size] if skip < len(piece) else b""
        skip = max(0, skip - len(piece))
        size -= len(wanted)
        if wanted:
            yield wanted
        if not size:
            return
    raise SourceError(f"{where}: the connection was cut, {size} bytes before the end")
