"""`vctl route override set`: what is written and confirmed, and what is refused with what to do."""

import asyncio
import json

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from tests.cli import published
from tests.cli.support import KEYS, Said, Vctl, a_fleet, running
from vctl_plans import invariants
from vctl_plans.codec import decode, encode
from vctl_plans.document import Group, groups_value
from vctl_plans.errors import Indeterminate
from vctl_plans.inspection import Drained, DrainPhase
from vctl_plans.operate import Request
from vctl_plans.overriding import MOST_OVERRIDES, hold
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Entry
from vctl_plans.route import Mode, Override, Route
from vctl_plans.store.memory import MemoryStore
from vctl_plans.written import Written

BETA = groups_value((Group(name="beta", tenant="acme"),))
SET = ("route", "override", "set")
FLAGS = ("--group", "beta", "--tenant", "acme", "--reason", "INC-1")


def on_two(**more: object) -> Vctl:
    """Return a fleet on which release 2 serves and release 1 is kept for an instant rollback."""
    route = a_route(stable=2, good=(1, 2), instant=(1,), **more)
    rollout = a_rollout(P.CONVERGED, confirmed=3)
    vctl = a_fleet(releases=3, route=route, rollout=rollout)
    for node in NODES:
        report = a_report(node, route_revision=999, r1=NodePhase.READY, r2=NodePhase.READY)
        vctl.put(KEYS.report(node), report)
    return vctl


def test_group_is_held_to_a_release_that_is_loaded():
    vctl = on_two()
    said = vctl(*SET, "--release", "1", *FLAGS)
    assert (0, "") == (said.code, said.err)
    assert said.out == (
        "beta of support are held to release 1, on 3 of 3 nodes;"
        " to end it: vctl route override rm beta -s support\n"
    )
    after = vctl.service()
    assert (Override(group=BETA.digest, release=1),) == after.current_route.overrides
    assert (2, (1,)) == (after.current_route.stable, after.current_route.instant)
    assert after.rollout == a_rollout(P.CONVERGED, confirmed=3)  # no rollout began
    told = vctl("route", "explain", "--tenant", "acme").out
    assert "release 1" in told


def test_who_and_why_are_in_the_history():
    vctl = on_two()
    vctl(*SET, "--release", "1", *FLAGS)
    entries = asyncio.run(vctl.store.list(KEYS.history(SERVICE))).entries
    (entry,) = [decode(each.value, Entry) for each in entries]
    assert ("ann", "INC-1") == (entry.by.user, entry.reason)
    assert "an operator holds beta to release 1; all others keep release 2" == entry.sentence
    assert entry.at
    assert entry.seen
    assert (1,) == entry.seen.traffic.groups
    events = vctl("events").out
    assert "an operator holds beta to release 1" in events
    assert "[INC-1]" in events
    assert "an operator holds beta" in vctl("rollout", "history").out


def test_the_same_again_writes_nothing():
    vctl = on_two()
    vctl(*SET, "--release", "1", *FLAGS)
    before = asyncio.run(vctl.store.list(KEYS.root)).entries
    said = vctl(*SET, "--release", "1", *FLAGS)
    assert (0, True) == (said.code, "beta of support had already release 1" in said.out)
    assert before == asyncio.run(vctl.store.list(KEYS.root)).entries


def test_newest_word_comes_first_and_rm_ends_it():
    other = Override(group="b3:other", release=2)
    vctl = on_two(overrides=(other,))
    vctl(*SET, "--release", "1", *FLAGS)
    assert [BETA.digest, "b3:other"] == [
        each.group for each in vctl.service().current_route.overrides
    ]
    assert 0 == vctl("route", "override", "rm", "beta", "--no-watch").code
    assert (other,) == vctl.service().current_route.overrides


def test_group_without_a_name_is_ended_by_its_digest():
    vctl = on_two()
    said = vctl(*SET, "--release", "1", "--user", "bo", "-o", "json")
    view = json.loads(said.out)
    assert ["override"] == published.check(said.out)
    table = vctl(*SET, "--release", "1", "--user", "bo").out
    assert f"vctl route override rm {view['groups'][:15]} -s support" in table
    assert 0 == vctl("route", "override", "rm", view["groups"][:15], "--no-watch").code


def test_gateway_that_does_not_confirm_is_named_and_is_8():
    vctl = on_two()
    slow = a_report("b", route_revision=1, r1=NodePhase.READY, r2=NodePhase.READY)
    vctl.put(KEYS.report("b"), slow)
    said = vctl(*SET, "--release", "1", *FLAGS, "--timeout", "300ms")
    assert 8 == said.code
    assert "unconfirmed: b" in said.err
    assert "on 2 of 3 nodes" in said.out
    said = vctl(*SET, "--release", "1", "--user", "bo", "--no-watch")
    assert (0, "") == (said.code, said.err)


def test_confirmation_is_waited_for():
    vctl = on_two()
    slow = a_report("b", route_revision=1, r1=NodePhase.READY, r2=NodePhase.READY)
    vctl.put(KEYS.report("b"), slow)

    async def follow(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.route(SERVICE)):
            route = update.entries.get(KEYS.route(SERVICE))
            if route and decode(route.value, Route).overrides:
                await store.put(KEYS.report("b"), encode(msgspec.structs.replace(
                    slow, routes={SERVICE: route.mod_revision}
                )))  # fmt: skip
                return

    vctl.conduct = follow
    said = vctl(*SET, "--release", "1", *FLAGS, "--timeout", "20s")
    assert (0, "") == (said.code, said.err)
    assert "on 3 of 3 nodes" in said.out


def refused(vctl: Vctl, *flags: str) -> Said:
    before = asyncio.run(vctl.store.list(KEYS.root)).entries
    said = vctl(*SET, *flags)
    assert before == asyncio.run(vctl.store.list(KEYS.root)).entries
    assert "" == said.out
    return said


def test_release_that_is_not_loaded_is_refused_with_how_to_bring_it():
    said = refused(on_two(), "--release", "3", *FLAGS)
    assert 7 == said.code
    assert (
        "release 3 of support cannot be given at once: it is not loaded; loaded: 1, 2" in said.err
    )
    assert "vctl rollout start -s support --release 3 --group beta" in said.err


def test_release_that_no_node_reports_ready_is_refused():
    vctl = on_two()
    for node in NODES:
        vctl.put(KEYS.report(node), a_report(node, route_revision=999, r2=NodePhase.READY))
    said = refused(vctl, "--release", "1", *FLAGS)
    assert (7, True) == (said.code, "no node reports it ready" in said.err)


def test_node_that_is_drained_is_none_that_serves_it():
    vctl = on_two()
    first, *others = NODES
    both = a_report(first, route_revision=999, r1=NodePhase.READY, r2=NodePhase.READY)
    drain = Drained(request="d", phase=DrainPhase.DRAINED)
    vctl.put(KEYS.report(first), msgspec.structs.replace(both, drain=drain))
    for node in others:
        vctl.put(KEYS.report(node), a_report(node, route_revision=999, r2=NodePhase.READY))
    said = refused(vctl, "--release", "1", *FLAGS)
    assert (7, True) == (said.code, "no node reports it ready" in said.err)


def test_overrides_are_few_for_all_gateways_read_them():
    many = tuple(Override(group=f"g{n}", release=1) for n in range(MOST_OVERRIDES))
    vctl = on_two(overrides=many)
    said = refused(vctl, "--release", "1", *FLAGS)
    assert (7, True) == (said.code, f"{MOST_OVERRIDES} groups of support" in said.err)
    assert "vctl route override rm" in said.err
    again = on_two(overrides=(Override(group=BETA.digest, release=2), *many[1:]))
    assert 0 == again(*SET, "--release", "1", *FLAGS).code  # no more than before


@pytest.mark.parametrize(
    ("vctl", "flags", "code", "told"),
    [
        (on_two(revoked=(3,)), ("--release", "3", *FLAGS), 7, "release 3 of support is revoked"),
        (on_two(), ("--release", "9", *FLAGS), 2, "release 9 of support does not exist"),
        (a_fleet(releases=2, rollout=running(P.SOAKING)), ("--release", "1", *FLAGS), 7,
         "rollout r2 of support is soaking"),
        (a_fleet(route=a_route(stable=0, good=())), ("--release", "1", *FLAGS), 7,
         "service support serves nothing yet"),
        (on_two(mode=Mode.DIRECT), ("--release", "1", *FLAGS), 2, "call the engines themselves"),
        (on_two(), FLAGS, 2, "which release are they to get?"),
        (on_two(), ("--release", "1"), 2, "who is to be held?"),
        (on_two(), ("--release", "1", "--group", "all", "--percent", "100"), 2, "is everybody"),
        (on_two(), ("--release", "1", *FLAGS, "-s", "suport"), 2, "did you mean 'support'?"),
    ],
    ids=["revoked", "unknown", "running", "nothing", "direct", "which", "who", "all", "service"],
)  # fmt: skip
def test_what_cannot_be_is_refused(vctl: Vctl, flags: tuple[str, ...], code: int, told: str):
    said = refused(vctl, *flags)
    assert code == said.code, said.err
    assert told in said.err


def test_lost_reply_is_settled_by_reading():
    vctl = on_two()
    vctl.failure = None
    store = vctl.store

    async def lose(peer: MemoryStore) -> None:
        peer.fail_next(Indeterminate("the reply was lost"))

    vctl.conduct = lose
    said = vctl(*SET, "--release", "1", *FLAGS)
    assert said.code == 0, said.err
    assert 1 == len(asyncio.run(store.list(KEYS.history(SERVICE))).entries)


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_written_breaks_no_invariant(number: int):
    service = on_two().service()
    done = hold(service, BETA, number, ready={"a"}, request=Request(id="x"))
    assert done
    before = Written(rollout=service.rollout, route=service.route)
    after = Written(rollout=service.rollout, route=done.route)
    assert [] == invariants.check(before, after)
