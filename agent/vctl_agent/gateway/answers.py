"""What the gateway answers by itself: errors in OpenAI's shape, the list of models."""

from collections.abc import Iterable

import msgspec
import structlog

from vctl_agent.gateway.wire.message import Answer

RETRY_AFTER_S = 1
"""Seconds after which a client may find a release ready or an engine back."""

_JSON_LINE = b"Content-Type: application/json\r\n"

_log = structlog.get_logger()


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

    def answer(self) -> Answer:
        """Return the answer; one that may go away by itself says when to try again."""
        error = {
            "message": self.message,
            "type": "invalid_request_error" if self.status < 500 else "server_error",  # noqa: PLR2004
            "param": self.param,
            "code": self.code,
        }
        answer = json_answer({"error": error}, status=self.status)
        if self.status == 503:  # noqa: PLR2004
            answer.add("Retry-After", str(RETRY_AFTER_S))
        if self.status == 401:  # noqa: PLR2004
            answer.add("WWW-Authenticate", "Bearer")  # RFC 9110 section 11.6.1
        return answer


class Elsewhere(Refused):
    """A 503 before any engine has served the request: another node may still do it.

    Args:
        message: For the client's author.
        code: For the client's program.
        instead: What the client gets when no other node does; this error if not given.
    """

    def __init__(self, message: str, *, code: str, instead: Answer | None = None) -> None:
        super().__init__(503, message, code=code)
        self._instead = instead

    def answer(self) -> Answer:
        """Return the answer for when no other node serves the request."""
        return self._instead or super().answer()


def no_model(model: str, why: str = "") -> Refused:
    """Return the refusal of a model that is not served here, as OpenAI's servers refuse it."""
    message = f"there is no model {model!r} here{': ' * bool(why)}{why}"
    return Refused(404, message, code="model_not_found", param="model")


def json_answer(document: object, *, status: int = 200) -> Answer:
    """Return *document* as an answer."""
    return Answer(status=status, lines=_JSON_LINE, body=msgspec.json.encode(document))


def plain_answer(
    text: str | bytes, *, status: int = 200, content_type: str = "text/plain; charset=utf-8"
) -> Answer:
    """Return *text* as an answer."""
    body = text.encode() if isinstance(text, str) else text
    answer = Answer(status=status, body=body)
    answer.add("Content-Type", content_type)
    return answer


_UNREADABLE = {
    400: "the request is no HTTP/1.1",
    408: "the request did not come in time",
    431: "the request's head is too large",
    501: "this gateway does not change protocols",
}


def unreadable(status: int) -> Answer:
    """Return the answer to what cannot be read as a request."""
    _log.warning("malformed request", status=status)  # nothing of its text: nobody has checked it
    return Refused(status, _UNREADABLE[status], code="invalid_request").answer()


def models(services: Iterable[str]) -> Answer:
    """Return the services as OpenAI lists models: public names only, never the engine's."""
    cards = [
        {"id": service, "object": "model", "created": 0, "owned_by": "vctl"}
        for service in sorted(services)
    ]
    return json_answer({"object": "list", "data": cards})
