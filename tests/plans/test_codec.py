"""Values in etcd: canonical JSON, a schema number, and what is unknown is handed on."""

import json

import pytest

from tests.builders import SERVICE, a_plan, a_rollout, a_route
from vctl_plans.codec import SCHEMA, decode, digest, encode
from vctl_plans.errors import VctlError
from vctl_plans.node import NodeReport
from vctl_plans.rollout import Roster
from vctl_plans.route import Route


@pytest.mark.parametrize("value", [a_route(), a_rollout(), a_plan(), Roster(nodes=("a",))])
def test_value_is_read_as_it_was_written(value: Route) -> None:
    """Whatever its kind."""
    assert value == decode(encode(value), type(value))


def test_schema_number_is_always_written() -> None:
    """Else a later reader's default, which is newer, would stand for it."""
    assert SCHEMA == json.loads(encode(a_route()))["v"]


def test_encoding_is_canonical() -> None:
    """Sorted, without spaces, defaults left out."""
    assert b'{"service":"support","v":1}' == encode(Route(service=SERVICE))


def test_unknown_fields_survive_a_rewrite() -> None:
    """Those of a newer vctl; a known field that is now at its default does not come back."""
    newer = b'{"newest":{"until":7},"service":"support","stable":1,"v":2,"weight":5.0}'
    after = encode(decode(newer, Route), over=newer)
    reset = encode(Route(service=SERVICE, stable=2), over=newer)

    assert json.loads(newer) == json.loads(after)
    assert {"newest": {"until": 7}, "service": SERVICE, "stable": 2, "v": 1} == json.loads(reset)


@pytest.mark.parametrize("over", [b"\xff", b"[]", b"{", b"7", b"[" * 100_000])
def test_what_cannot_be_handed_on_is_refused(over: bytes) -> None:
    """Rather than lost."""
    with pytest.raises(VctlError, match="what is to be replaced cannot be read"):
        encode(a_route(), over=over)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b'{"service":7}', b"{}", b'{"service":"\xff"}', b"[" * 100_000]
)
def test_unreadable_value_names_its_key(data: bytes) -> None:
    """And no foreign exception comes out."""
    with pytest.raises(VctlError, match="unreadable Route at /vctl/x"):
        decode(data, Route, key="/vctl/x")


def test_report_of_an_older_agent_is_read() -> None:
    """What it does not tell is not known."""
    older = b'{"boot_id":"b1","gateway_ok":true,"incarnation":"run-1","node":"n1","v":1}'
    report = decode(older, NodeReport)

    assert (0, "run-1") == (report.cache_epoch, report.incarnation)


def test_digest_depends_on_value_and_kind() -> None:
    """A value of one kind does not pass for another."""
    roster = Roster(nodes=("a", "b"))

    assert roster.digest == digest(Roster(nodes=("a", "b")), context="roster")
    assert roster.digest != Roster(nodes=("a",)).digest
    assert roster.digest != digest(roster, context="plan")
