"""A hook at an address: the document goes there by POST, and the status says how it went.

A status is read as its class says: 2xx done; 408, 425, 429 and 5xx not now; anything else failed
for good. No redirect is followed: it would take the token elsewhere.
"""

import asyncio
import ssl
from functools import cached_property
from http import HTTPStatus
from pathlib import Path

import httpx
import msgspec

from vctl_agent.hook import MAX_ANSWER_BYTES, printable
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError

_NOT_NOW = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}


class UrlHook:
    """An address, and how long it may take.

    Args:
        url: Where to.
        timeout_s: After this time a call is given up.
        token_file: A bearer token; read at each call, so that it can be renewed.
        named: What it is, for messages.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        token_file: Path | None = None,
        named: str = "the hook",
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._token_file = token_file
        self._named = named

    async def run(self, event: str, document: bytes) -> bytes:
        """Post the document; cancelled, break off."""
        headers = {"content-type": "application/json", **self._authorization()}
        try:
            # httpx's limit is for each piece of an answer, ours for the whole.
            async with asyncio.timeout(self._timeout_s), self._client() as client:
                response = await client.post(self._url, content=document, headers=headers)
        except TimeoutError as cause:
            raise TemporaryEngineError(
                f"{self._named} did not answer on {event} within {self._timeout_s:g} s"
            ) from cause
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            why = str(cause) or type(cause).__name__
            problem = f"{self._named} cannot be reached on {event}: {why}"
            raise TemporaryEngineError(problem) from cause
        if not response.is_success:
            raise self._failure(event, response)
        return response.content[:MAX_ANSWER_BYTES]

    def _client(self) -> httpx.AsyncClient:
        # Made anew: a hook is asked seldom, and whoever answers may have moved.
        return httpx.AsyncClient(timeout=self._timeout_s, trust_env=False, verify=self._trusted)

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _authorization(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as cause:
            raise TemporaryEngineError(f"{self._named}'s token cannot be read: {cause}") from cause
        return {"authorization": f"Bearer {token}"}

    def _failure(self, event: str, response: httpx.Response) -> EngineError:
        problem = f"{self._named} failed on {event} ({response.status_code})"
        reason = _reason(response)
        is_later = response.is_server_error or response.status_code in _NOT_NOW
        kind = TemporaryEngineError if is_later else PermanentEngineError
        return kind(f"{problem}: {reason}" if reason else problem)


def _reason(response: httpx.Response) -> str:
    """Return what was said, for a person: the field ``reason`` of a JSON object, else the text."""
    try:
        said = msgspec.json.decode(response.content, type=dict[str, object]).get("reason")
    except (msgspec.MsgspecError, RecursionError):
        said = None
    return printable(said if isinstance(said, str) else response.text)
