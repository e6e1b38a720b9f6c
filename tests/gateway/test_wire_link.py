"""What a server says on a connection that carries request after request, and what it may not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.upstream import Upstream
from vctl_agent.gateway.wire.client import Pool
from vctl_agent.gateway.wire.incoming import MAX_BUFFERED_BYTES, Broken, Incoming

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


def plain(body: bytes) -> bytes:
    return PLAIN % (len(body), body)


class Server:
    """Says the next of its answers to each request; counts its connections."""

    def __init__(self, *answers: bytes) -> None:
        self.url = ""
        self.connections = 0
        self.asked: list[bytes] = []
        self._answers = list(answers)
        self._tasks: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append(head + await reader.readexactly(len(b"{}")))
                said = self._answers.pop(0)
                for part in said.split(b"|"):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                if b"closes" in said:
                    break
        writer.close()
        self._tasks.discard(task)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream(5.0)
    yield made
    made.close()


async def ask(upstream: Upstream, server: Server) -> tuple[int, bytes]:
    answer = await upstream.ask(server.url, "/v1/x?q=1", b"X-A: 1\r\n", b"{}")
    try:
        return answer.status, await answer.read()
    finally:
        answer.close()


async def test_answers_of_one_connection_are_apart(upstream: Upstream):
    second = (
        b"HTTP/1.1 404 Not here\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    second += b"3\r\ntwo|\r\n0\r\n\r\n"
    async with Server(plain(b"one"), second, plain(b"three")).running() as server:
        assert [(200, b"one"), (404, b"two"), (200, b"three")] == [
            await ask(upstream, server) for _ in range(3)
        ]
        assert 1 == server.connections
        wanted = b"POST /v1/x?q=1 HTTP/1.1\r\nHost: %b\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n{}"
        assert [wanted % server.url[len("http://") :].encode()] * 3 == server.asked


async def test_answer_before_the_final_one_is_passed_over(upstream: Upstream):
    early = b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n|"
    async with Server(early + plain(b"one"), plain(b"two")).running() as server:
        assert (200, b"one") == await ask(upstream, server)
        assert (200, b"two") == await ask(upstream, server)
        assert 1 == server.connections


@pytest.mark.parametrize("more", [plain(b"forged"), b"HTTP/1.1 2", b"|nonsense"])
async def test_what_follows_an_answer_is_nobodys(upstream: Upstream, more: bytes):
    async with Server(plain(b"one") + more, plain(b"two")).running() as server:
        assert (200, b"one") == await ask(upstream, server)
        await asyncio.sleep(0.02)
        assert (200, b"two") == await ask(upstream, server)
        assert 2 == server.connections


@pytest.mark.parametrize("field", [b"Connection: close\r\nContent-Length: 6\r\n", b""])
async def test_connection_that_ends_with_its_answer_is_not_used_again(
    upstream: Upstream, field: bytes
):
    answer = b"HTTP/1.1 200 OK\r\n" + field + b"\r\ncloses"
    async with Server(answer, plain(b"two")).running() as server:
        assert (200, b"closes") == await ask(upstream, server)
        assert (200, b"two") == await ask(upstream, server)
        assert 2 == server.connections


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncloses",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\ncloses",
        b"nonsense closes",
    ],
)
async def test_answer_that_is_cut_or_malformed_is_no_answer(upstream: Upstream, said: bytes):
    async with Server(said).running() as server:
        with pytest.raises(Exception, match=r"closed|HTTP|cannot be reached") as caught:
            await ask(upstream, server)
        assert not isinstance(caught.value, Refused) or 503 == caught.value.status


async def poured(answer: Incoming, into: Callable[[bytes], bool]) -> None:
    async with asyncio.timeout(5):
        await answer.pour(into)


async def test_body_is_poured_as_it_comes_and_stops_when_it_is_not_taken(upstream: Upstream):
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (40 * MAX_BUFFERED_BYTES)
    large += b"x" * 40 * MAX_BUFFERED_BYTES
    async with Server(large).running() as server:
        answer = await upstream.ask(server.url, "/", b"", b"{}")
        taken: list[bytes] = []

        def into(piece: bytes) -> bool:
            taken.append(piece)
            return False

        await poured(answer, into)
        assert 1 == len(taken)
        await asyncio.sleep(0.05)
        assert 1 == len(taken)
        await poured(answer, into)
        assert len(b"".join(taken)) < 20 * MAX_BUFFERED_BYTES
        while not answer.is_spent:
            await poured(answer, into)
        assert 40 * MAX_BUFFERED_BYTES == len(b"".join(taken))
        answer.close()


async def test_what_taking_raises_is_raised_where_the_request_is_handled(upstream: Upstream):
    streamed = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|1\r\na\r\n|1\r\nb\r\n|0\r\n\r\n"
    )
    async with Server(streamed).running() as server:
        answer = await upstream.ask(server.url, "/", b"", b"{}")

        def into(_: bytes) -> bool:
            raise ConnectionResetError("the client is gone")

        with pytest.raises(ConnectionResetError, match="the client is gone"):
            await poured(answer, into)
        answer.close()


async def test_what_is_no_http_after_a_piece_in_the_same_read_ends_the_wait(upstream: Upstream):
    """The piece was taken; that nothing follows it has to be told all the same."""
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|1\r\na\r\nnonsense\r\n"
    async with Server(said).running() as server:
        answer = await upstream.ask(server.url, "/", b"", b"{}")
        taken: list[bytes] = []

        def into(piece: bytes) -> bool:
            taken.append(piece)
            return True

        with pytest.raises(Broken, match="no HTTP"):
            await poured(answer, into)
        answer.close()
        assert [b"a"] == taken


async def test_what_taking_raises_is_raised_though_the_end_comes_before_it_is_seen(
    upstream: Upstream,
):
    async with Server(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n|"
    ).running() as server:
        answer = await upstream.ask(server.url, "/", b"", b"{}")

        def into(_: bytes) -> bool:
            raise ValueError("a bug")

        pouring = asyncio.ensure_future(poured(answer, into))
        await asyncio.sleep(0)  # it waits
        answer.add(b"a")
        answer.tell()
        answer.end(stays=True)
        answer.tell()
        with pytest.raises(ValueError, match="a bug"):
            await pouring
        answer.close()


async def test_connection_that_is_gone_cannot_be_asked(upstream: Upstream):
    """Nobody would tell of its end a second time."""
    pool = Pool(5.0)
    async with Server().running() as server:  # it hangs up at once
        link = await pool.connected(server.url)
        async with asyncio.timeout(5):
            while not link.is_lost:
                await asyncio.sleep(0.01)
        with pytest.raises(Broken, match="closed"):
            await asyncio.wait_for(link.ask("/", b"", b"{}").news(), 1)


async def test_connection_on_which_a_request_is_still_being_sent_carries_no_other(
    upstream: Upstream,
):
    """What answers early may never read the rest, or take it for a request of its own."""
    serving: list[asyncio.Task[None] | None] = []

    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(plain(b"early"))
        with contextlib.suppress(OSError):
            await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer_early, "127.0.0.1", 0, limit=2**10)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for _ in range(2):
        async with asyncio.timeout(5):
            answer = await upstream.ask(url, "/", b"", b"x" * 2**25)
        assert b"early" == await answer.read()
        answer.close()
    upstream.close()
    server.close()
    await asyncio.gather(*filter(None, serving))
    assert 2 == len(serving)
