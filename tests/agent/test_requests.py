"""What of the requests' keys is for this node."""

import msgspec
import pytest

from vctl_agent.requests import read_requests
from vctl_plans.codec import encode
from vctl_plans.inspection import CollectRequest, HashRequest, OperatorRequest, VerifyRequest
from vctl_plans.phase import Component
from vctl_plans.store.port import KeyValue

ALL: tuple[OperatorRequest, ...] = (
    CollectRequest(id="a", is_dry=True),
    HashRequest(id="b", source="file:///x", component=Component.ADAPTER),
    VerifyRequest(id="c", service="support"),
)


def _entries(*requests: OperatorRequest) -> dict[str, KeyValue]:
    return {r.id: KeyValue(r.id, encode(r), 1, 1) for r in requests}


def test_every_kind_is_read_as_what_it_is():
    assert list(ALL) == read_requests(_entries(*ALL), "n1")


@pytest.mark.parametrize("request_", ALL, ids=lambda r: type(r).__name__)
def test_request_for_others_is_not_ours(request_: OperatorRequest):
    named = msgspec.structs.replace(request_, nodes=("n2", "n3"))

    assert [] == read_requests(_entries(named), "n1")
    assert [named] == read_requests(_entries(named), "n2")


@pytest.mark.parametrize("value", [b"nonsense", b'{"v":1,"id":"a"}', b'{"v":1,"kind":"later"}'])
def test_request_that_cannot_be_read_is_passed_over(value: bytes):
    """The others are answered."""
    entries = {"a": KeyValue("a", value, 1, 1), **_entries(ALL[2])}

    assert [ALL[2]] == read_requests(entries, "n1")
