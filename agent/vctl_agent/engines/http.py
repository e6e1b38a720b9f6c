"""Speaks HTTP to an engine: deadlines, a key, and errors of vctl's own kinds.

An answer is judged by its status, never by its text, and no foreign exception leaves this module.
Which statuses are an answer rather than an error is for the caller to say, call by call.
"""

import abc
import asyncio
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Self, TypeVar

import httpx
import msgspec

from vctl_plans.errors import PermanentEngineError, TemporaryEngineError

T = TypeVar("T")

DESCRIBE_S = 5.0
"""Time for a look at the engine."""

CHANGE_S = 120.0
"""Time for a change or an answer of a model."""

_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_STRANGERS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_TEXT_CHARS = 200


class UnansweredError(TemporaryEngineError):
    """It was asked, and did not answer in time: whether it did what was asked is not known."""


class Closing(abc.ABC):
    """Closed at the end of an `async with`."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Drop connections."""

    async def __aenter__(self) -> Self:
        """Return it, open."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drop connections."""
        await self.close()


class EngineHttp(Closing):
    """An engine's HTTP interface at one URL.

    Args:
        url: Where it answers.
        named: Whose interface is expected there, for messages.
        key: The key that it asks for; empty: none.
    """

    def __init__(self, url: str, *, named: str, key: str = "") -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._named = named
        self._client = httpx.AsyncClient(
            base_url=url, timeout=DESCRIBE_S, trust_env=False, headers=headers
        )

    async def close(self) -> None:
        """Drop connections."""
        await self._client.aclose()

    async def ask(
        self,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        method: str = "",
        within_s: float = CHANGE_S,
        accept: Collection[int] = (),
    ) -> httpx.Response:
        """Ask, and return the answer.

        Args:
            path: Where to.
            body: Sent as JSON.
            query: Parameters after the path.
            method: By default POST with a body, else GET.
            within_s: Time for the whole of it.
            accept: Statuses of errors that are an answer to the caller; a refused key is none.

        Raises:
            UnansweredError: No answer in time.
            TemporaryEngineError: It is away, or says that it may work later.
            PermanentEngineError: Any other error.
        """
        method = method or ("GET" if body is None else "POST")
        request = self._client.build_request(
            method, path, json=body, params=query, timeout=within_s
        )
        response = await self._send(request, within_s)
        status = response.status_code
        if not response.is_error or (status in accept and status not in _STRANGERS):
            return response
        said = f"{method} {path}: {status} {said_by(response)}"
        if status in _STRANGERS:
            raise PermanentEngineError(
                said, hint="name the file that holds the engine's key: --engine-key-file"
            )
        if response.is_server_error or status in _BUSY:
            raise TemporaryEngineError(said)
        raise PermanentEngineError(said)

    async def _send(self, request: httpx.Request, within_s: float) -> httpx.Response:
        try:
            # httpx's limit is for each piece of an answer, ours for the whole.
            async with asyncio.timeout(within_s):
                try:
                    return await self._client.send(request)
                except (httpx.ReadError, httpx.RemoteProtocolError):
                    if request.method != "GET":
                        raise
                    # A server closes a connection after some errors; what only looks, looks again.
                    return await self._client.send(request)
        except (httpx.HTTPError, TimeoutError) as cause:
            why = str(cause) or type(cause).__name__
            raise _away(cause)(
                f"the engine at {self._client.base_url} does not answer: {why}"
            ) from cause

    def read(self, response: httpx.Response, kind: type[T]) -> T:
        """Return an answer's JSON as *kind*.

        Raises:
            PermanentEngineError: It is not of that kind.
        """
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.MsgspecError, RecursionError) as cause:
            raise PermanentEngineError(
                f"{response.url} does not answer as {self._named}: {cause}",
                hint="is another program listening there?",
            ) from cause


def _away(cause: Exception) -> type[TemporaryEngineError]:
    """Return the kind of a failure; where no connection was made, nothing was asked."""
    is_late = isinstance(cause, (TimeoutError, httpx.ReadTimeout))
    return UnansweredError if is_late else TemporaryEngineError


def said_by(response: httpx.Response) -> str:
    """Return what an error says, for a person to read; nothing is decided by it."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return response.text[:_TEXT_CHARS]
