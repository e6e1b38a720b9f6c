"""The engine's side of a request: ask, and relay the answer as it comes.

Nothing is queued here: a chunk is passed on in the step in which it comes, and none is read while
the client does not take what was sent, so back-pressure goes through to the engine. A client that
goes away closes the engine's connection, which aborts the generation. An engine that breaks off
breaks the client's connection as well: an answer that was cut short must not look whole.
"""

from collections.abc import Callable

from vctl_agent.gateway.answers import Elsewhere, Refused
from vctl_agent.gateway.headers import for_client
from vctl_agent.gateway.observation import Observation
from vctl_agent.gateway.rewrite import EventStream, ModelName
from vctl_agent.gateway.wire.client import Pool, Unreachable
from vctl_agent.gateway.wire.incoming import Broken, Incoming, Into, Late
from vctl_agent.gateway.wire.message import Answer, Request

Stamp = Callable[[Answer], None]
"""Puts the gateway's own header fields on an answer, before it is sent."""

_FIRST_ERROR_STATUS = 400


class EngineBroke(Exception):  # noqa: N818  an event on one request, not an error of vctl
    """The engine ended an answer before its end; the client has its beginning."""


class Upstream:
    """Engines and peers, asked over connections that are kept open between requests.

    Args:
        timeout_s: Seconds without a byte from the engine before a request is given up.
    """

    def __init__(self, timeout_s: float) -> None:
        self._pool = Pool(timeout_s)

    async def sweep(self) -> None:
        """Give up what is late, until cancelled."""
        await self._pool.sweep()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def ask(self, base: str, path: str, lines: bytes, body: bytes) -> Incoming:
        """Send a request; return the answer once its head has come. The caller closes it.

        Args:
            base: Where the server is, as a URL.
            path: What to ask it for, with the query.
            lines: The fields as they are sent, but for Host and Content-Length.
            body: What is sent.

        Raises:
            Elsewhere: The engine is not there, and has got nothing.
            Refused: 503, it broke off; 504, it does not answer in time.
        """
        pool = self._pool
        try:
            link = pool.kept(base) or await pool.connected(base)
            answer = link.ask(path, lines, body)
            try:
                while not answer.has_head:
                    await answer.news()
            except BaseException:  # also of a cancellation the engine learns
                answer.close()
                raise
            else:
                return answer
        except (Unreachable, Broken, Late) as cause:
            raise _refused(cause) from cause


async def relay(
    answer: Incoming,
    request: Request,
    *,
    name: ModelName | None,
    stamp: Stamp,
    seen: Observation | None = None,
) -> Answer:
    """Pass the engine's answer on, under the public name of the model.

    Args:
        answer: The engine's answer, of which the header has been read.
        request: The client's request.
        name: The names to exchange; None: pass everything unchanged.
        stamp: Called before the answer's header is sent.
        seen: Told what becomes of the answer.

    Raises:
        Refused: The engine broke off before anything was sent.
        EngineBroke: The engine broke off after that.
    """
    if seen:
        seen.answered(answer.status)
    if name is None or answer.head.is_encoded:
        return await _stream(answer, request, stamp, seen=seen)
    kind = answer.content_type
    if kind == "text/event-stream":
        return await _stream(answer, request, stamp, events=EventStream(name), seen=seen)
    if answer.status >= _FIRST_ERROR_STATUS or kind == "application/json":
        return await _whole(answer, name, stamp)
    return await _stream(answer, request, stamp, seen=seen)


def _begun(answer: Incoming, body: bytes = b"") -> Answer:
    return Answer(answer.status, for_client(answer.head), body, answer.reason)


async def _whole(answer: Incoming, name: ModelName, stamp: Stamp) -> Answer:
    body = answer.taken() if answer.is_whole else await _rest(answer)
    is_error = answer.status >= _FIRST_ERROR_STATUS
    response = _begun(answer, name.restored_text(body) if is_error else name.restored(body))
    stamp(response)
    return response


async def _stream(
    answer: Incoming,
    request: Request,
    stamp: Stamp,
    *,
    events: EventStream | None = None,
    seen: Observation | None = None,
) -> Answer:
    response = _begun(answer)
    stamp(response)
    await request.begin(response)
    way = request.way

    def pass_on(piece: bytes) -> bool:
        if seen:
            seen.streamed()
        way.write_piece(events.feed(piece) if events else piece)
        return not way.is_full

    while not answer.is_spent:
        await _poured(answer, pass_on)
        await way.drained()
    if events and (rest := events.end()):
        await request.write(rest)
    if events and seen:
        seen.stopped(is_whole=events.is_done)
    await request.end()
    return response


async def _rest(answer: Incoming) -> bytes:
    try:
        return await answer.read()
    except (Broken, Late) as cause:
        raise _refused(cause) from cause


async def _poured(answer: Incoming, into: Into) -> None:
    try:
        await answer.pour(into)
    except (Broken, Late) as cause:
        raise EngineBroke(str(cause) or type(cause).__name__) from cause


def _refused(cause: Exception) -> Refused:
    if isinstance(cause, Unreachable):
        return Elsewhere("the engine cannot be reached", code="engine_unavailable")
    if isinstance(cause, Late):
        return Refused(504, "the engine did not answer in time", code="engine_timeout")
    return Refused(503, "the engine cannot be reached", code="engine_unavailable")
