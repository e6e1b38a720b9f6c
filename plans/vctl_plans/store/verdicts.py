"""What a gRPC error of etcd means for the call that got it.

The one place that reads codes and texts, because etcd gives the same code for "not applied" and
"who knows". Everything after it decides by type. The texts are those of etcd's
``api/v3rpc/rpctypes/error.go`` and of gRPC's own connection errors, the same in 3.4 to 3.6.
"""

import grpc

from vctl_plans.errors import LeaseLost, Rejected

_Code = grpc.StatusCode

# The server, or the way to it, is at fault: another attempt, perhaps elsewhere, may work.
_BROKEN = {
    _Code.UNAVAILABLE,
    _Code.DEADLINE_EXCEEDED,
    _Code.CANCELLED,
    _Code.UNKNOWN,  # "not a primary lessor", "context canceled" and the like
    _Code.INTERNAL,  # a reset HTTP/2 stream
    _Code.ABORTED,
}
# ... and here it is certain that the request was not carried out.
_NEVER_APPLIED = ("failed to connect", "connection refused", "etcdserver: no leader")
_TOKEN_REFUSED = ("user name is empty", "revision of auth store is old", "invalid auth token")


class BrokenAttemptError(Exception):
    """An attempt that failed on the way.

    Args:
        may_be_applied: The server may have carried it out all the same.
    """

    def __init__(self, reason: str, *, may_be_applied: bool = True) -> None:
        super().__init__(reason)
        self.may_be_applied = may_be_applied


class TokenRefusedError(Exception):
    """The server wants a (new) token; nothing was carried out."""


class CompactedError(Rejected):
    """The revision asked for is no longer kept."""


class TooLargeError(Rejected):
    """A message is larger than its receiver takes."""


def translate(error: grpc.aio.AioRpcError) -> Exception:
    """Return the exception to raise, `from` *error*, in its place."""
    code, text = error.code(), error.details() or ""
    reason = f"{code.name}: {text}"
    if code is _Code.UNAUTHENTICATED or any(known in text for known in _TOKEN_REFUSED):
        return TokenRefusedError(reason)
    if code in _BROKEN:
        lower = text.lower()
        return BrokenAttemptError(
            reason, may_be_applied=not any(known in lower for known in _NEVER_APPLIED)
        )
    if code is _Code.RESOURCE_EXHAUSTED:
        return _exhausted(text)
    if code is _Code.OUT_OF_RANGE and "compacted" in text:
        return CompactedError(text, code=code.name)
    if code is _Code.NOT_FOUND and "lease not found" in text:
        return LeaseLost("the lease does not exist (any more)")
    return Rejected(f"etcd refused: {text}", code=code.name)


def _exhausted(text: str) -> Exception:
    if "too many requests" in text:
        return BrokenAttemptError(text, may_be_applied=False)
    if "larger than max" in text:
        return TooLargeError(text, code=_Code.RESOURCE_EXHAUSTED.name)
    if "database space exceeded" in text:
        return Rejected(
            "etcd is full: its space quota is used up, it takes no writes",
            code=_Code.RESOURCE_EXHAUSTED.name,
            hint="etcdctl compact REVISION, etcdctl defrag, then etcdctl alarm disarm",
        )
    return Rejected(f"etcd refused: {text}", code=_Code.RESOURCE_EXHAUSTED.name)
