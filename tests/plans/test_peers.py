"""Who is listed as a peer, and above all when nothing is written."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import SERVICE, a_base_wish, a_report, a_rollout, a_route, a_service
from vctl_plans import peers as under_test
from vctl_plans.codec import decode, encode
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.peers import MOST_PEERS, Peer, Peers, ReleasePeers, standing
from vctl_plans.phase import NodePhase, RolloutPhase
from vctl_plans.route import Mode, Route
from vctl_plans.snapshot import Fleet, Service

NOTHING = Peers(service=SERVICE)
READY, LOADING = NodePhase.READY, NodePhase.LOADING


def service(route: Route | None = None) -> Service:
    return a_service(route=route or a_route(), releases=3)


def report(node: str, **phases: NodePhase) -> NodeReport:
    """Return a report that names releases by their digests."""
    made = a_report(node, rollout=None, route_revision=7, **phases)
    known = service().releases
    releases = (
        msgspec.structs.replace(each, digest=known[each.number].digest) for each in made.releases
    )
    return msgspec.structs.replace(made, releases=tuple(releases))


def record(node: str, **more: Any) -> NodeRecord:
    plain = NodeRecord(node=node, boot_id=f"boot-{node}", gateway_url=f"http://{node}:8080")
    return msgspec.structs.replace(plain, **more)


def fleet(*reports: NodeReport, **records: NodeRecord) -> Fleet:
    known = {each.node: record(each.node) for each in reports} | records
    return Fleet(records=known, reports={each.node: each for each in reports})


def of_nodes(ready: int, unready: int = 1) -> Fleet:
    """Return a fleet of nodes that hold release 1 ready, and of some that do not."""
    reports = [report(f"n{n}", r1=READY) for n in range(ready)]
    return fleet(*reports, *(report(f"u{n}", r1=LOADING) for n in range(unready)))


def listed(of: Service, nodes: Fleet, before: Peers) -> Peers:
    return under_test.listed(of, standing(nodes), before)


def names(peers: Peers, number: int = 1) -> list[str]:
    return [peer.node for peer in peers.of(number, service().releases[number].digest)]


def test_fleet_whose_nodes_are_all_ready_needs_no_peers():
    assert NOTHING == listed(service(), of_nodes(3, unready=0), NOTHING)


def test_ready_nodes_are_listed_once_one_is_not():
    found = listed(service(), fleet(report("a", r1=READY), report("b", r1=LOADING)), NOTHING)
    digest = service().releases[1].digest
    listing = ReleasePeers(number=1, digest=digest, gateways=(Peer(node="a", url="http://a:8080"),))
    assert Peers(service=SERVICE, releases=(listing,)) == found
    assert found == decode(encode(found), Peers)


def test_each_routed_release_has_peers_of_its_own():
    moving = service(a_route(candidate=2, weight=10.0))
    nodes = fleet(report("a", r1=READY, r2=READY), report("b", r1=READY, r2=LOADING))
    found = listed(moving, nodes, NOTHING)
    assert [] == names(found, 1)  # all are ready for it
    assert ["a"] == names(found, 2)


def test_release_that_is_not_routed_has_none():
    found = listed(service(), fleet(report("a", r2=READY), report("b")), NOTHING)
    assert NOTHING == found


@pytest.mark.parametrize(
    ("a", "a_record"),
    [
        (msgspec.structs.replace(report("a", r1=READY), gateway_ok=False), record("a")),
        (report("a", r1=READY), record("a", gateway_url="")),
        (report("a", r1=READY), record("a", boot_id="another")),
        (report("a", r1=NodePhase.DRAINING), record("a")),
        (a_report("a", r1=READY), record("a")),  # another digest
    ],
)
def test_node_is_no_peer(a: NodeReport, a_record: NodeRecord):
    nodes = fleet(a, report("b", r1=READY), report("c"), a=a_record)
    assert ["b"] == names(listed(service(), nodes, NOTHING))


def test_node_whose_agent_died_is_one_that_needs_peers():
    """Its gateway may well live, and be asked for what it was never loaded with."""
    nodes = of_nodes(2, unready=0)
    dead = {**nodes.reports, "d": report("d", r1=READY)}
    found = listed(service(), msgspec.structs.replace(nodes, reports=dead), NOTHING)
    assert ["n0", "n1"] == names(found)


def test_what_stands_is_kept_when_it_is_needed_no_more():
    before = listed(service(), of_nodes(3), NOTHING)
    assert before == listed(service(), of_nodes(3, unready=0), before)


def test_peer_that_stopped_being_ready_goes_and_comes_back_when_needed():
    before = listed(service(), of_nodes(3), NOTHING)
    two = fleet(report("n0", r1=READY), report("n1", r1=READY), report("n2", r1=LOADING))
    after = listed(service(), two, before)
    assert ["n0", "n1"] == names(after)
    assert after == listed(service(), of_nodes(3, unready=0), after)
    assert ["n0", "n1", "n2"] == names(listed(service(), of_nodes(3), after))


def test_peer_that_moved_is_listed_where_it_is():
    before = listed(service(), of_nodes(1), NOTHING)
    moved = record("n0", gateway_url="http://elsewhere:1")
    nodes = fleet(report("n0", r1=READY), report("u0"), n0=moved)
    (peer,) = listed(service(), nodes, before).of(1, service().releases[1].digest)
    assert "http://elsewhere:1" == peer.url


def test_release_that_left_the_route_leaves_the_key():
    before = listed(service(), of_nodes(3), NOTHING)
    assert NOTHING == listed(service(a_route(stable=2)), of_nodes(3), before)


def test_no_more_than_enough_are_listed_and_others_for_another_release():
    moving = service(a_route(candidate=2, weight=10.0))
    reports = [report(f"n{n}", r1=READY, r2=READY) for n in range(300)]
    found = listed(moving, fleet(*reports, report("u")), NOTHING)
    first, second = names(found, 1), names(found, 2)
    assert MOST_PEERS == len(first) == len(second)
    assert sorted(first) == first
    assert len(set(first) & set(second)) < MOST_PEERS / 2  # 14 are expected by chance


def test_every_conductor_lists_the_same():
    assert listed(service(), of_nodes(300), NOTHING) == listed(service(), of_nodes(300), NOTHING)


def test_node_that_comes_changes_nothing_where_enough_are_listed():
    before = listed(service(), of_nodes(100), NOTHING)
    assert before == listed(service(), of_nodes(300), before)


def test_one_that_goes_is_replaced_and_the_others_stay():
    before = listed(service(), of_nodes(100), NOTHING)
    gone = names(before)[7]
    left = [each for each in of_nodes(100).reports.values() if each.node != gone]
    after = listed(service(), fleet(*left), before)
    assert MOST_PEERS == len(names(after))
    assert {gone} == set(names(before)) - set(names(after))


@given(
    st.lists(st.sets(st.integers(0, 90)), min_size=1, max_size=6),
    st.sets(st.integers(0, 90), min_size=1),
)
def test_list_is_right_after_any_history_and_then_stands(history: list[set[int]], known: set[int]):
    """Whatever was ready before: all listed are ready, enough are listed, and it is at rest."""
    peers = NOTHING
    for ready in history:
        before = peers
        reports = [
            report(f"n{n}", r1=READY if n in ready else LOADING) for n in sorted(known | ready)
        ]
        nodes = fleet(*reports)
        peers = listed(service(), nodes, peers)
        assert peers == listed(service(), nodes, peers)
        if not ready:
            assert names(before) == names(peers)  # nobody says that it is ready: whoever was may be
        elif known - ready:
            assert set(names(peers)) <= {f"n{n}" for n in ready}
            assert min(MOST_PEERS, len(ready)) == len(names(peers))


def test_node_that_is_to_change_its_base_is_listed_no_more():
    """It says still that it is ready: others would send it what it does not serve any more."""
    releases = dict(service().releases)
    releases[2] = msgspec.structs.replace(releases[2], components=a_base_wish(2))
    nodes = fleet(report("a", r1=READY), report("b", r1=READY), report("c", r1=LOADING))
    for wave, expected in ((0.0, ["a", "b"]), (100.0, [])):
        rollout = a_rollout(RolloutPhase.SHIFTING, wave_size=1, wave=wave)
        moving = msgspec.structs.replace(service(), releases=releases, rollout=rollout)
        assert expected == names(listed(moving, nodes, NOTHING))


def test_who_was_ready_last_stays_while_nobody_says_so():
    """Of one holder the agent died: its gateway serves on, and would not be asked any more."""
    before = listed(service(), fleet(report("a", r1=READY), report("b", r1=LOADING)), NOTHING)
    gone = fleet(report("b", r1=LOADING))
    begun = fleet(report("b", r1=LOADING), report("a", r1=LOADING))
    other = fleet(report("b", r1=READY), a=record("a"))
    guessed = listed(service(), gone, before)
    assert guessed == listed(service(), begun, before) == listed(service(), gone, guessed)
    assert (names(before), before.confirmed(1, service().releases[1].digest)) == (
        ["a"],
        frozenset("a"),
    )
    assert (names(guessed), guessed.confirmed(1, service().releases[1].digest)) == (
        ["a"],
        frozenset(),
    )
    assert ["b"] == names(listed(service(), other, before))


def test_direct_service_has_no_peers() -> None:
    """No gateway serves it: there is nobody to pass a request to."""
    nodes = Fleet(
        records={"a": record("a"), "b": record("b")},
        reports={"a": report("a", r1=READY), "b": report("b", r1=LOADING)},
    )
    through, itself = service(), service(a_route(mode=Mode.DIRECT))
    assert 1 == len(under_test.listed(through, standing(nodes), NOTHING).releases)
    assert NOTHING == under_test.listed(itself, standing(nodes), NOTHING)
