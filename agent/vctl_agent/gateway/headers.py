"""Which header fields pass, in both directions (RFC 9110 section 7.6.1)."""

import re
import secrets
from itertools import count

from vctl_agent.gateway.wire.fields import Fields, written
from vctl_agent.gateway.wire.heads import OWN_PREFIX, Head

REQUEST_ID_HEADER = "x-request-id"
ROUTE_HEADER = "x-vctl-route"
_REQUEST_ID_NAME = REQUEST_ID_HEADER.encode()

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Written anew for the engine: its address, the new body's length; no encoding, as we rewrite.
_NOT_TO_ENGINE = _HOP_BY_HOP | {
    "accept-encoding",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    REQUEST_ID_HEADER,
}
# Written anew for the client: the restored body's length, and this server's own date and name.
_NOT_TO_CLIENT = _HOP_BY_HOP | {"content-length", "date", "server", REQUEST_ID_HEADER}
_RUN = secrets.token_hex(8)
"""Tells apart the request ids of one run of the gateway from all others."""

_count = count()
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def request_id(given: str) -> str:
    """Return the client's request id if it is fit for a log, else a new one."""
    if given and _REQUEST_ID.fullmatch(given):
        return given
    return f"{_RUN}{next(_count):016x}"


def for_engine(head: Head, kept_here: frozenset[str] = frozenset()) -> bytes:
    """Return a request's fields for the engine, as lines; what is vctl's own stays here.

    The request's id is still to be added; so are the body's length and the engine's address.

    Args:
        head: The request's.
        kept_here: More names of fields that stay here; always the same of one listener's heads.
    """
    if head.passed is None:
        passed = _passed(head.fields, _NOT_TO_ENGINE | kept_here)
        passed.setdefault("Content-Type", "application/json")
        passed["Accept-Encoding"] = "identity"
        head.passed = written(passed.items())
    return head.passed


def for_client(head: Head) -> bytes:
    """Return the engine's fields for the client, as lines."""
    if head.passed is None:
        head.passed = written(_passed(head.fields, _NOT_TO_CLIENT).items())
    return head.passed


def id_line(request_id: str) -> bytes:
    """Return the field that tells a request's id, which is fit for a log."""
    return b"%b: %b\r\n" % (_REQUEST_ID_NAME, request_id.encode())


def _passed(headers: Fields, dropped: frozenset[str]) -> Fields:
    connection = headers.get("connection", "")
    if connection and connection.lower() not in {"keep-alive", "close"}:
        dropped = dropped | {name.strip().lower() for name in connection.split(",")}
    return Fields(
        [
            (name, value)
            for name, value in headers.items()
            if (lowered := name.lower()) not in dropped and not lowered.startswith(OWN_PREFIX)
        ]
    )
