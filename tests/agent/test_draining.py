"""A node that is taken out of service: when the gateway is told, and what the report says."""

import msgspec
import pytest

from tests.builders import SERVICE, a_route, some_releases
from vctl_agent.draining import Draining
from vctl_agent.local import AgentState, GatewayState, InFlight, ReadyRelease
from vctl_plans.codec import encode
from vctl_plans.inspection import DrainPhase, DrainRequest, VerifyRequest, drain_id
from vctl_plans.keys import Keys
from vctl_plans.peers import Peer, Peers, ReleasePeers
from vctl_plans.release import Actor
from vctl_plans.route import Mode
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.store.port import KeyValue

KEYS = Keys("dev")
RELEASES = some_releases(2)
READY = tuple(
    ReadyRelease(service=SERVICE, number=n, digest=r.digest, model=f"m{n}")
    for n, r in RELEASES.items()
)
REQUEST = DrainRequest(id=drain_id("a"), nodes=("a",), by=Actor(user="ann"), reason="kernel")
HEARD = GatewayState(boot_id="g", routes={})


def a_fleet(**route: object) -> Fleet:
    service = Service(name=SERVICE, releases=RELEASES, route=a_route(**route), route_revision=7)
    return Fleet(services={SERVICE: service})


def peers(*nodes: str, number: int = 1, unconfirmed: bool = False) -> dict[str, KeyValue]:
    """Return the entries with *nodes* as the peers of a release."""
    gateways = tuple(Peer(node=node, url=f"http://{node}") for node in nodes)
    digest = RELEASES[number].digest
    listed = ReleasePeers(number=number, digest=digest, gateways=gateways, unconfirmed=unconfirmed)
    key = KEYS.peers(SERVICE)
    value = encode(Peers(service=SERVICE, releases=(listed,)))
    return {key: KeyValue(key, value, 1, sum(value))}


def offered(
    draining: Draining, ready: tuple[ReadyRelease, ...], heard: GatewayState
) -> tuple[ReadyRelease, ...]:
    return draining.offered(AgentState(boot_id="b", engine_url="", ready=ready), heard).ready


@pytest.fixture
def draining() -> Draining:
    made = Draining("a", KEYS, lambda: None)
    made.follow(a_fleet(), {})
    return made


def test_nothing_is_told_before_it_is_known_what_operators_want(draining: Draining):
    was_known = draining.is_known
    draining.ask([])
    assert (was_known, draining.is_known) == (False, True)
    assert offered(draining, READY, HEARD) == READY
    assert draining.answer(HEARD) is None


def test_a_node_that_may_not_read_requests_serves(draining: Draining):
    draining.refuse()
    assert draining.is_known
    assert offered(draining, READY, HEARD) == READY


def test_it_serves_until_a_peer_is_named_then_nothing_and_says_how_far_it_is(draining: Draining):
    draining.ask([VerifyRequest(id="v"), REQUEST])
    assert offered(draining, READY, HEARD) == READY
    waits = draining.answer(HEARD)
    assert waits is not None
    assert waits.phase is DrainPhase.WAITING
    assert waits.sentence == (
        "to be drained by ann (kernel): no other node that its gateway can reach is ready for"
        f" release 1 of {SERVICE}"
    )
    draining.follow(a_fleet(), peers("a"))  # it is no peer of its own
    assert offered(draining, READY, HEARD) == READY

    draining.follow(a_fleet(), peers("b"))
    assert offered(draining, READY, HEARD) == ()
    acted = msgspec.structs.replace(HEARD, accepted=READY)
    busy = msgspec.structs.replace(HEARD, in_flight=(InFlight(service=SERVICE, number=1, count=2),))
    phases = [getattr(draining.answer(heard), "phase", None) for heard in (acted, busy, HEARD)]
    assert phases == [DrainPhase.DRAINING, DrainPhase.DRAINING, DrainPhase.DRAINED]


def test_once_out_it_stays_out_until_the_request_goes(draining: Draining):
    draining.follow(a_fleet(), peers("b"))
    draining.ask([REQUEST])
    assert offered(draining, READY, HEARD) == ()
    draining.follow(a_fleet(), {})  # the peers have gone: it does not flap
    assert offered(draining, READY, HEARD) == ()
    draining.ask([])
    assert offered(draining, READY, HEARD) == READY
    draining.ask([REQUEST])  # and begins anew
    assert offered(draining, READY, HEARD) == READY


def test_every_release_that_serves_needs_a_peer_and_what_does_not_serve_needs_none(
    draining: Draining,
):
    draining.ask([REQUEST])
    draining.follow(a_fleet(candidate=2, weight=10.0), peers("b"))
    assert offered(draining, READY, HEARD) == READY
    answer = draining.answer(HEARD)
    assert answer is not None
    assert f"release 2 of {SERVICE}" in answer.problem
    draining.follow(a_fleet(instant=(2,)), peers("b"))
    assert offered(draining, READY, HEARD) == ()


def test_a_gateway_without_the_fleet_key_cannot_be_drained(draining: Draining):
    draining.follow(a_fleet(), peers("b"))
    draining.ask([REQUEST])
    alone = msgspec.structs.replace(HEARD, can_forward=False)
    assert offered(draining, READY, alone) == READY
    answer = draining.answer(alone)
    assert answer is not None
    assert "--fleet-key-file" in answer.problem


def test_what_a_drain_cannot_change_is_said(draining: Draining):
    draining.ask([REQUEST])
    draining.follow(a_fleet(mode=Mode.DIRECT), {})
    assert offered(draining, (), HEARD) == ()
    answer = draining.answer(HEARD)
    assert answer is not None
    assert answer.sentence == (
        f"drained by ann (kernel); clients of {SERVICE} call its engine themselves"
    )


def test_nodes_that_are_to_be_drained_do_not_count_on_each_other(draining: Draining):
    """The one whose request came later serves on until a third is named."""
    other = DrainRequest(id=drain_id("b"), nodes=("b",))
    draining.follow(a_fleet(), peers("b"))
    draining.ask([other, REQUEST])
    assert offered(draining, READY, HEARD) == READY
    draining.follow(a_fleet(), peers("b", "c"))
    assert offered(draining, READY, HEARD) == ()


def test_another_s_drain_is_not_one_s_own(draining: Draining):
    draining.follow(a_fleet(), peers("b"))
    draining.ask([DrainRequest(id=drain_id("b"), nodes=("b",))])
    assert offered(draining, READY, HEARD) == READY
    assert draining.answer(HEARD) is None


@pytest.mark.parametrize(
    "of_old", [peers("a", "b"), peers("b", unconfirmed=True)], ids=["from before", "a guess"]
)
def test_a_list_that_may_name_who_is_gone_does_not_count(
    draining: Draining, of_old: dict[str, KeyValue]
):
    """It was written before the drain, or nobody says any more that he is ready."""
    draining.follow(a_fleet(), of_old)
    draining.ask([REQUEST])
    assert offered(draining, READY[:1], HEARD) == READY[:1]
    answer = draining.answer(HEARD)
    assert answer is not None
    assert "no other node" in answer.problem
