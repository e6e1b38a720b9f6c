"""What each of etcd's errors means for a call."""

import grpc
import grpc.aio
import pytest

from vctl_plans.errors import LeaseLost, Rejected
from vctl_plans.store.verdicts import (
    BrokenAttemptError,
    CompactedError,
    TokenRefusedError,
    TooLargeError,
    translate,
)

Code = grpc.StatusCode


def error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text, None)


@pytest.mark.parametrize(
    ("code", "text", "may_be_applied"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses; last error: ...", False),
        (Code.UNAVAILABLE, "etcdserver: no leader", False),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", False),
        (Code.UNAVAILABLE, "etcdserver: request timed out", True),
        (Code.UNAVAILABLE, "etcdserver: leader changed", True),
        (Code.UNAVAILABLE, "Socket closed", True),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", True),
        (Code.UNKNOWN, "not a primary lessor", True),
        (Code.INTERNAL, "Received RST_STREAM with error code 2", True),
        (Code.CANCELLED, "", True),
    ],
)
def test_a_broken_way_says_whether_the_request_may_have_arrived(
    code: grpc.StatusCode, text: str, may_be_applied: bool
):
    translated = translate(error(code, text))
    assert isinstance(translated, BrokenAttemptError)
    assert translated.may_be_applied == may_be_applied


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", TokenRefusedError),
        (Code.INVALID_ARGUMENT, "etcdserver: user name is empty", TokenRefusedError),
        (
            Code.INVALID_ARGUMENT,
            "etcdserver: revision of auth store is old",
            TokenRefusedError,
        ),
        (
            Code.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            CompactedError,
        ),
        (
            Code.RESOURCE_EXHAUSTED,
            "Received message larger than max (5 vs. 4)",
            TooLargeError,
        ),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", LeaseLost),
    ],
)
def test_what_the_store_knows_how_to_go_on_after(
    code: grpc.StatusCode, text: str, expected: type[Exception]
):
    assert type(translate(error(code, text))) is expected


def test_a_refusal_keeps_its_code_and_text():
    translated = translate(error(Code.PERMISSION_DENIED, "etcdserver: permission denied"))
    assert isinstance(translated, Rejected)
    assert translated.code == "PERMISSION_DENIED"
    assert translated.message == "etcd refused: etcdserver: permission denied"
