"""The engine's side of a request: ask, and relay the answer as it comes.

Nothing is queued here: a chunk is read when the client has taken the one before, so back-pressure
goes through to the engine, and a client that goes away closes the engine's connection, which aborts
the generation. An engine that breaks off breaks the client's connection as well: an answer that was
cut short must not look whole.
"""

import io
from collections.abc import Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from vctl_agent.gateway.answers import Elsewhere, Refused
from vctl_agent.gateway.headers import for_client
from vctl_agent.gateway.observation import Observation
from vctl_agent.gateway.rewrite import EventStream, ModelName

Stamp = Callable[[web.StreamResponse], None]
"""Puts the gateway's own header fields on an answer, before it is sent."""

CONNECT_TIMEOUT_S = 5.0

KEEPALIVE_S = 3.0
"""Below uvicorn's 5 s, so that a connection is seldom used while the engine closes it."""

_LARGE_BODY_BYTES = 2**20
"""Above it aiohttp wants a stream, which it sends piece by piece."""

_FIRST_ERROR_STATUS = 400


class EngineBroke(Exception):  # noqa: N818  an event on one request, not an error of vctl
    """The engine ended an answer before its end; the client has its beginning."""


class Upstream:
    """Connections to the engine, kept open between requests.

    Args:
        timeout_s: Seconds without a byte from the engine before a request is given up.
    """

    def __init__(self, timeout_s: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("Accept", "User-Agent", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(self, url: str, body: bytes, headers: CIMultiDict[str]) -> aiohttp.ClientResponse:
        """Send a request; return the answer's beginning. The caller closes it.

        Raises:
            Elsewhere: The engine is not there, and has got nothing.
            Refused: 503, it broke off; 504, it does not answer in time.
        """
        payload = body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body)
        try:
            return await self._session.post(
                URL(url, encoded=True), data=payload, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as cause:
            raise _refused(cause) from cause


async def relay(
    answer: aiohttp.ClientResponse,
    request: web.BaseRequest,
    *,
    name: ModelName | None,
    stamp: Stamp,
    seen: Observation | None = None,
) -> web.StreamResponse:
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
    if name is None or "content-encoding" in answer.headers:
        return await _stream(answer, request, stamp, seen=seen)
    if answer.content_type == "text/event-stream":
        return await _stream(answer, request, stamp, events=EventStream(name), seen=seen)
    if answer.status >= _FIRST_ERROR_STATUS or answer.content_type == "application/json":
        return await _whole(answer, name, stamp)
    return await _stream(answer, request, stamp, seen=seen)


async def _whole(
    answer: aiohttp.ClientResponse, name: ModelName, stamp: Stamp
) -> web.StreamResponse:
    try:
        body = await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as cause:
        raise _refused(cause) from cause
    is_error = answer.status >= _FIRST_ERROR_STATUS
    response = web.Response(
        body=name.restored_text(body) if is_error else name.restored(body),
        status=answer.status,
        reason=answer.reason,
        headers=for_client(answer.headers),
    )
    stamp(response)
    return response


async def _stream(
    answer: aiohttp.ClientResponse,
    request: web.BaseRequest,
    stamp: Stamp,
    *,
    events: EventStream | None = None,
    seen: Observation | None = None,
) -> web.StreamResponse:
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=for_client(answer.headers)
    )
    stamp(response)
    await response.prepare(request)
    while chunk := await _next_chunk(answer.content):
        if seen:
            seen.streamed()
        passed = events.feed(chunk) if events else chunk
        if passed:
            await response.write(passed)
    if events and (rest := events.end()):
        await response.write(rest)
    if events and seen:
        seen.stopped(is_whole=events.is_done)
    await response.write_eof()
    return response


async def _next_chunk(content: aiohttp.StreamReader) -> bytes:
    try:
        return await content.readany()
    except (aiohttp.ClientError, OSError, TimeoutError) as cause:
        raise EngineBroke(str(cause) or type(cause).__name__) from cause


def _refused(cause: Exception) -> Refused:
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Elsewhere("the engine cannot be reached", code="engine_unavailable")
    if isinstance(cause, TimeoutError):
        return Refused(504, "the engine did not answer in time", code="engine_timeout")
    return Refused(503, "the engine cannot be reached", code="engine_unavailable")
