"""What every read over HTTP has in common: one client, what its answers mean, and how to end it.

A redirect is followed a few times and never from https to http; credentials go to the first place
only. An answer's status decides the type of the error, and so whether trying again may help.
"""

import contextlib
import socket
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from vctl_plans.errors import SourceError, SourceRefused
from vctl_plans.location import shown

from .status import MISSING, kind_of

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
"""Of one read or write on a socket, not of the whole: a slow source is not a dead one."""

_MAX_REDIRECTS = 5


class Web:
    """A client for one source, whose reads can be ended from another thread.

    Args:
        authorization: The header to send to the source's own origin; empty for none.
    """

    def __init__(self, authorization: str = "") -> None:
        own = {"Authorization": authorization} if authorization else {}
        self._client = httpx.Client(
            timeout=_TIMEOUT,
            headers={"Accept-Encoding": "identity", "User-Agent": "vctl"} | own,
        )
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_aborted = False

    @contextlib.contextmanager
    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Iterable[bytes] | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request; within the context the answer's body can be read.

        Raises:
            SourceError: No answer came, or it broke off while the context was open.
            SourceRefused: It redirects where we do not follow.
        """
        try:
            request = self._client.build_request(
                method, url, headers=headers, content=content, extensions={"trace": self._trace}
            )
            with contextlib.closing(self._answer(request)) as response:
                yield response
        except httpx.HTTPError as cause:
            said = "no answer in time" if isinstance(cause, httpx.TimeoutException) else str(cause)
            raise SourceError(f"{shown(url)}: {said or type(cause).__name__}") from cause
        except (httpx.InvalidURL, httpx.StreamConsumed) as cause:  # a body is sent once only
            rule = "redirects a write" if content else "is no address"
            raise SourceRefused(f"{shown(url)}: {rule}") from cause

    def get(self, url: str, *, limit: int) -> bytes | None:
        """Read a whole small file; None when there is none.

        Raises:
            SourceRefused: It is longer than *limit*, or we may not read it.
            SourceError: It cannot be read now.
        """
        with self.stream("GET", url) as response:
            if response.status_code in MISSING:
                return None
            check_status(response, url)
            body = bytearray()
            for piece in response.iter_raw():
                body += piece
                if len(body) > limit:
                    raise SourceRefused(f"{shown(url)}: is longer than {limit} bytes")
        return bytes(body)

    def abort(self) -> None:
        """Break all connections: who reads, or waits for an answer, fails soon."""
        self._is_aborted = True
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        for _ in range(_MAX_REDIRECTS + 1):
            if self._is_aborted:
                raise SourceError(f"{shown(str(request.url))}: ended from here")
            response = self._client.send(request, stream=True)
            if response.next_request is None:
                return response
            response.close()
            is_secure = request.url.scheme == "https"
            request = response.next_request
            if is_secure and request.url.scheme != "https":
                raise SourceRefused(f"{_of(response)}: redirects from https to http")
        raise SourceRefused(f"{_of(response)}: more than {_MAX_REDIRECTS} redirects")

    def _trace(self, event: str, about: Mapping[str, Any]) -> None:
        """Take each new connection's socket; httpcore tells of it."""
        if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return
        made = about["return_value"].get_extra_info("socket")
        self._sockets.add(made)
        if self._is_aborted:
            made.shutdown(socket.SHUT_RDWR)


def check_status(response: httpx.Response, url: str) -> None:
    """Raise what an answer's status means; nothing for one that is good."""
    status = response.status_code
    if response.is_success:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise SourceRefused(f"{shown(url)}: the server sends it encoded ({encoding})")
        return
    raise kind_of(status)(f"{shown(url)}: the server answers {status} {response.reason_phrase}")


def _of(response: httpx.Response) -> str:
    return shown(str(response.request.url))
