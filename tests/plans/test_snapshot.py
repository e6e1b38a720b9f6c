"""One reading of the store: what cannot be read is told, and hides nothing else."""

import msgspec
import pytest

from tests.builders import SERVICE, a_report, a_rollout, a_route, some_releases
from vctl_plans.codec import encode
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord
from vctl_plans.rollout import ServiceSpec
from vctl_plans.snapshot import Fleet, read_nodes, read_services
from vctl_plans.store.port import KeyValue

KEYS = Keys("dev")


def an_entry(key: str, value: bytes | msgspec.Struct, revision: int = 5) -> KeyValue:
    """Return a stored key."""
    data = value if isinstance(value, bytes) else encode(value)
    return KeyValue(key=key, value=data, create_revision=revision, mod_revision=revision)


def a_store() -> dict[str, KeyValue]:
    """Return a service's keys."""
    releases = some_releases(2)
    entries = [
        an_entry(KEYS.spec(SERVICE), ServiceSpec(service=SERVICE), 1),
        *(an_entry(KEYS.release(SERVICE, n), r, n + 1) for n, r in releases.items()),
        an_entry(KEYS.rollout(SERVICE), a_rollout(), 8),
        an_entry(KEYS.route(SERVICE), a_route(), 7),
        an_entry(KEYS.service(SERVICE) + "peers", b"{}", 9),
        an_entry(KEYS.spec("other"), ServiceSpec(service="other"), 2),
    ]
    return {entry.key: entry for entry in entries}


def test_services_are_read_with_their_revisions() -> None:
    """A decision compares them when it is written."""
    service = read_services(KEYS, a_store().values()).services[SERVICE]

    assert (8, 7, 1) == (service.rollout_revision, service.route_revision, service.spec_revision)
    assert some_releases(2) == service.releases
    assert (a_rollout(), a_route()) == (service.rollout, service.route)
    assert some_releases(1)[1] == service.stable


@pytest.mark.parametrize(
    "key", [KEYS.rollout(SERVICE), KEYS.route(SERVICE), KEYS.release(SERVICE, 1)]
)
@pytest.mark.parametrize("garbage", [b"{", b"[]", b'{"v":1}', b'{"service":"\xff"}'])
def test_unreadable_value_hides_no_other(key: str, garbage: bytes) -> None:
    """It is named, and its revision says that it is there."""
    whole = read_services(KEYS, a_store().values())
    store = a_store() | {key: an_entry(key, garbage, 9)}
    fleet = read_services(KEYS, store.values())
    service, before = fleet.services[SERVICE], whole.services[SERVICE]
    kept = [
        getattr(service, name) == getattr(before, name)
        for name in ("spec", "rollout", "route", "releases")
    ]

    assert (1, 3) == (len(fleet.problems), sum(kept))
    assert key in fleet.problems[0]
    assert whole.services["other"] == fleet.services["other"]


def test_service_without_a_route_begins_with_an_empty_one() -> None:
    """Salted with its name, so that services do not move the same keys together."""
    service = read_services(KEYS, a_store().values()).services["other"]

    assert (None, 0, "other", 0) == (
        service.route,
        service.route_revision,
        service.current_route.salt,
        service.current_route.stable,
    )


def test_report_counts_only_for_the_agent_that_lives() -> None:
    """Its node's record is there, and its boot id is the record's."""
    records = [an_entry(KEYS.node(n), NodeRecord(node=n, boot_id=f"boot-{n}")) for n in ("a", "b")]
    reports = [an_entry(KEYS.report(n), a_report(n)) for n in ("a", "b", "gone")]
    again = msgspec.structs.replace(a_report("b"), boot_id="before")
    fleet = read_nodes(KEYS, records, [reports[0], an_entry(KEYS.report("b"), again), reports[2]])

    assert ["a"] == list(fleet.present())
    assert ["a", "b", "gone"] == sorted(fleet.reports)


def test_unreadable_report_is_a_problem_of_its_own() -> None:
    """The other nodes still count."""
    records = [an_entry(KEYS.node(n), NodeRecord(node=n, boot_id=f"boot-{n}")) for n in ("a", "b")]
    reports = [an_entry(KEYS.report("a"), b"{"), an_entry(KEYS.report("b"), a_report("b"))]
    fleet = read_nodes(KEYS, records, reports)

    assert ["b"] == list(fleet.present())
    assert 1 == len(fleet.problems)


def test_empty_store_is_an_empty_fleet() -> None:
    """Nothing, and no problem."""
    assert Fleet() == read_services(KEYS, [])
