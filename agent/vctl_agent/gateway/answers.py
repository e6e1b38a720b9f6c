"""What the gateway answers by itself: errors in OpenAI's shape, the list of models."""

from collections.abc import Iterable

import msgspec
from aiohttp import web

RETRY_AFTER_S = 1
"""Seconds after which a client may find a release ready or an engine back."""

_JSON = "application/json"


class Refused(Exception):  # noqa: N818  not an error of vctl: an answer to a client
    """A request that ends with an error of the gateway's own.

    Args:
        status: The HTTP status.
        message: For the client's author.
        code: For the client's program.
        param: The field at fault, if one is.
    """

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param

    def answer(self) -> web.StreamResponse:
        """Return the answer; one that may go away by itself says when to try again."""
        error = {
            "message": self.message,
            "type": "invalid_request_error" if self.status < 500 else "server_error",  # noqa: PLR2004
            "param": self.param,
            "code": self.code,
        }
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status == 503 else None  # noqa: PLR2004
        return json_answer({"error": error}, status=self.status, headers=headers)


class Elsewhere(Refused):
    """A 503 before any engine has served the request: another node may still do it.

    Args:
        message: For the client's author.
        code: For the client's program.
        instead: What the client gets when no other node does; this error if not given.
    """

    def __init__(
        self, message: str, *, code: str, instead: web.StreamResponse | None = None
    ) -> None:
        super().__init__(503, message, code=code)
        self._instead = instead

    def answer(self) -> web.StreamResponse:
        """Return the answer for when no other node serves the request."""
        return self._instead or super().answer()


def json_answer(
    document: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return *document* as an answer."""
    body = msgspec.json.encode(document)
    return web.Response(body=body, status=status, headers=headers, content_type=_JSON)


def models(services: Iterable[str]) -> web.Response:
    """Return the services as OpenAI lists models: public names only, never the engine's."""
    cards = [
        {"id": service, "object": "model", "created": 0, "owned_by": "vctl"}
        for service in sorted(services)
    ]
    return json_answer({"object": "list", "data": cards})
