"""Which header fields pass, in both directions (RFC 9110 section 7.6.1)."""

import re
import uuid
from collections.abc import Mapping

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
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's request id if it is fit for a log, else a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


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
    passed = Fields()
    for name, value in headers.items():
        lowered = name.lower()
        if lowered not in dropped and not lowered.startswith(_OWN_PREFIX):
            passed.add(name, value)
    return passed
