"""HTTP/1.1 as far as asking etcd's JSON gateway needs it: one POST after the other on a connection.

`http.client` does far more, and imports an e-mail parser and TLS for it: 25 ms, a fifth of what
`vctl status` takes in all. The rule to keep: only what RFC 9112 lets a server answer to a POST is
taken; everything else is `MalformedAnswer`, and every wait on the network has the socket's limit.
"""

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import ssl

_LONGEST_LINE_BYTES = 65536
_MOST_HEADERS = 100
_CONTINUE_CLASS = 1
_HEX = 16


class MalformedAnswer(Exception):  # noqa: N818  as its siblings
    """It is no HTTP, or was cut."""


class TlsError(OSError):
    """The other side is not trusted, or does not trust us; the text says why."""


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class PlainHttp:
    """One connection, opened when it is first used.

    Args:
        host: Of the server.
        port: Of the server.
        tls: Makes what checks the server's certificate; None: no TLS.
    """

    def __init__(
        self, host: str, port: int, tls: "Callable[[], ssl.SSLContext] | None" = None
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float
    ) -> Answer:
        """Send a request and read its answer; *timeout_s* is for each of the steps.

        Raises:
            MalformedAnswer: What came is no answer, or not the whole of one.
            TlsError: Certificates are not accepted, here or there.
            OSError: The network, or a step that took too long.
        """
        try:
            reader = self._connected(timeout_s)
            self._send(path, body, headers)
            answer, is_last = _answer(reader)
        except OSError as error:
            self.close()
            raise self._translated(error) from error
        except MalformedAnswer:
            self.close()
            raise
        if is_last:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        for each in (self._reader, self._socket):
            if each is not None:
                each.close()
        self._socket = self._reader = None

    def _connected(self, timeout_s: float) -> BinaryIO:
        if self._socket is None or self._reader is None:
            made = socket.create_connection((self._host, self._port), timeout_s)
            try:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls:
                    made = self._tls().wrap_socket(made, server_hostname=self._host)
            except BaseException:
                made.close()
                raise
            self._socket, self._reader = made, made.makefile("rb")
        self._socket.settimeout(timeout_s)
        return self._reader

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = {"Host": f"{host}:{self._port}", "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        assert self._socket is not None  # noqa: S101  see `_connected`
        self._socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    def _translated(self, error: OSError) -> OSError:
        if not self._tls:
            return error
        import ssl  # noqa: PLC0415  it is imported by now

        if isinstance(error, ssl.SSLCertVerificationError):
            return TlsError(f"its certificate is not accepted: {error.verify_message}")
        if isinstance(error, ssl.SSLError):
            return TlsError(error.strerror or str(error))
        return error


def _answer(reader: BinaryIO) -> tuple[Answer, bool]:
    """Read an answer, and whether it is the connection's last."""
    status, headers = _head(reader)
    while status // 100 == _CONTINUE_CLASS:
        status, headers = _head(reader)
    coding = headers.get("transfer-encoding", "").lower()
    length = headers.get("content-length")
    is_last = headers.get("connection", "").lower() == "close"
    if coding == "chunked":
        return Answer(status, headers, _chunks(reader)), is_last
    if coding:
        raise MalformedAnswer(f"it is sent as {coding!r}")
    if length is None:  # RFC 9112 section 6.3, rule 8
        return Answer(status, headers, reader.read()), True
    if not length.isdecimal():
        raise MalformedAnswer(f"its length is {length!r}")
    return Answer(status, headers, _exactly(reader, int(length))), is_last


def _head(reader: BinaryIO) -> tuple[int, dict[str, str]]:
    first = _line(reader)
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():  # noqa: PLR2004  version and status
        raise MalformedAnswer(f"it answers {first[:60]!r}, which is no HTTP")
    headers: dict[str, str] = {}
    for _ in range(_MOST_HEADERS):
        line = _line(reader)
        if not line:
            return int(words[1]), headers
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    raise MalformedAnswer(f"it sends more than {_MOST_HEADERS} headers")


def _chunks(reader: BinaryIO) -> bytes:
    """Read a body in chunks, and what stands behind it (RFC 9112 section 7.1)."""
    found = bytearray()
    while True:
        line = _line(reader).partition(";")[0].strip()
        try:
            size = int(line, _HEX)
        except ValueError as cause:
            raise MalformedAnswer(f"a chunk begins with {line[:60]!r}") from cause
        if size < 0:
            raise MalformedAnswer(f"a chunk begins with {line[:60]!r}")
        if not size:
            break
        found += _exactly(reader, size)
        _line(reader)
    while _line(reader):
        pass
    return bytes(found)


def _exactly(reader: BinaryIO, size: int) -> bytes:
    body = reader.read(size)
    if len(body) < size:
        raise MalformedAnswer("the connection was cut")
    return body


def _line(reader: BinaryIO) -> str:
    line = reader.readline(_LONGEST_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise MalformedAnswer(
            "the connection was cut" if len(line) < _LONGEST_LINE_BYTES else "a line is too long"
        )
    return line.rstrip(b"\r\n").decode("latin-1")
