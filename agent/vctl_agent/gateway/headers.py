"""Which header fields pass, in both directions (RFC 9110 section 7.6.1)."""

import re
import secrets
from collections.abc import Mapping
from itertools import count

from vctl_agent.gateway.wire.fields import Fields

REQUEST_ID_HEADER = "x-request-id"
ROUTE_HEADER = "x-vctl-route"

_OWN_PREFIX = "x-vctl-"
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


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's request id if it is fit for a log, else a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    if given and _REQUEST_ID.fullmatch(given):
        return given
    return f"{_RUN}{next(_count):016x}"


def for_engine(headers: Mapping[str, str], request_id: str) -> Fields:
    """Return the request's header fields for the engine; what is vctl's own stays here."""
    passed = _passed(headers, _NOT_TO_ENGINE)
    passed.setdefault("Content-Type", "application/json")
    passed["Accept-Encoding"] = "identity"
    passed[REQUEST_ID_HEADER] = request_id
    return passed


def for_client(headers: Mapping[str, str]) -> Fields:
    """Return the engine's header fields for the client."""
    return _passed(headers, _NOT_TO_CLIENT)


def _passed(headers: Mapping[str, str], dropped: frozenset[str]) -> Fields:
    connection = headers.get("connection", "")
    if connection and connection.lower() not in {"keep-alive", "close"}:
        dropped = dropped | {name.strip().lower() for name in connection.split(",")}
    return Fields(
        [
            (name, value)
            for name, value in headers.items()
            if (lowered := name.lower()) not in dropped and not lowered.startswith(_OWN_PREFIX)
        ]
    )
