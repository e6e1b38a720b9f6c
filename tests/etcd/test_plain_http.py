"""What a server may answer to a POST, and what is no answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from vctl_plans.store.plain_http import MalformedAnswer, PlainHttp


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer each request on one connection; yield the port, and the requests as they come."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                for answer in answers:
                    asked.append(taken.recv(65536))
                    taken.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join(5)


def posted(port: int, count: int = 1) -> list[tuple[int, bytes]]:
    http = PlainHttp("127.0.0.1", port)
    try:
        found = [http.post("/v3", b"{}", {"A": "b"}, timeout_s=5) for _ in range(count)]
    finally:
        http.close()
    return [(each.status, each.body) for each in found]


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\nabc"
CHUNKED = (
    b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nab\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
)


def test_answers_follow_each_other_on_one_connection():
    """By length and in chunks; what stands behind the chunks is not taken for the next answer."""
    with answering(WHOLE, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE) as (port, asked):
        assert [(200, b"abc"), (400, b"ab0123456789"), (200, b"abc")] == posted(port, 3)
    expected = (
        f"POST /v3 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 2\r\nA: b\r\n\r\n{{}}"
    )
    assert expected.encode() == asked[0]


def test_answer_without_a_length_ends_with_its_connection():
    with answering(b"HTTP/1.0 200 OK\r\n\r\nabc") as (port, _):
        assert [(200, b"abc")] == posted(port)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "was cut"),
        (b"SSH-2.0-x\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "was cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", "length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "chunk begins"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "was cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "gzip"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200, "headers"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 70000, "too long"),
    ],
)
def test_what_is_no_answer_is_told(answer: bytes, said: str):
    with answering(answer) as (port, _), pytest.raises(MalformedAnswer, match=said):
        posted(port)
