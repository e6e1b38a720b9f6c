"""Into vctl and out of it: what is found, what is refused, and what is kept of a service."""

from typing import Any

import msgspec
import pytest

from tests.builders import (
    NODES,
    SERVICE,
    a_plan,
    a_report,
    a_rollout,
    a_root,
    a_route,
    a_service,
    an_adapter,
    an_adapter_wish,
)
from vctl_plans import ejecting, operate
from vctl_plans.adopting import agreed, refuse_known, sighting
from vctl_plans.codec import decode, encode
from vctl_plans.errors import PlanError, RootMismatch, TransitionError
from vctl_plans.inspection import Hashed
from vctl_plans.node import NodeReport, Unmanaged
from vctl_plans.operate import Begin, Request
from vctl_plans.phase import Component, RolloutPhase
from vctl_plans.release import Actor, Release, adopted, compose
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Mode, Override
from vctl_plans.snapshot import Service

ASKED = Request(id="q", reason="leaving")


def seen(node: str, **listed: str) -> NodeReport:
    """Return the report of a node whose engine lists these adapters, as ``name=path``."""
    found = tuple(Unmanaged(name, path) for name, path in listed.items())
    return msgspec.structs.replace(a_report(node), unmanaged=found)


# -- finding -------------------------------------------------------------------------------------


def test_name_is_found_where_engines_list_it() -> None:
    """And who does not is named too."""
    found = sighting(
        {"b": seen("b", chat="/m/chat"), "a": seen("a", chat="/m/chat"), "c": seen("c")}, "chat"
    )
    assert (("a", "b"), ("c",), "/m/chat") == (found.nodes, found.missing, found.path)


def test_several_places_are_told_and_one_must_be_named() -> None:
    """Which of them is meant, nobody can know."""
    found = sighting({"a": seen("a", chat="/m/1"), "b": seen("b", chat="/m/2")}, "chat")
    with pytest.raises(PlanError, match="a: /m/1; b: /m/2") as refused:
        _ = found.path
    assert "--path" in refused.value.hint


def test_name_that_nobody_lists_is_refused_with_a_close_one() -> None:
    """Typing errors are the most likely."""
    with pytest.raises(PlanError) as refused:
        sighting({"a": seen("a", chat="/m/chat")}, "caht")
    assert refused.value.hint == "did you mean 'chat'?"
    with pytest.raises(PlanError) as nothing:
        sighting({"a": seen("a")}, "chat")
    assert "vctl status" in nothing.value.hint


# -- verifying -----------------------------------------------------------------------------------


def test_nodes_that_agree_say_what_it_is() -> None:
    """One that cannot read it does not outvote one that can."""
    good = Hashed(request="q", root=a_root(1), size_bytes=9, rank=8, base_name="llama")
    bad = Hashed(request="q", problem="no such directory")
    found = agreed({"a": good, "b": bad}, "file:///m/chat")
    assert found is not None
    assert (a_root(1), "file:///m/chat", 9, 8, "llama") == (
        found.root, found.source, found.size_bytes, found.rank, found.base_name,
    )  # fmt: skip
    assert agreed({"b": bad}, "file:///m/chat") is None
    assert agreed({}, "file:///m/chat") is None


def test_nodes_that_differ_are_named_with_what_they_found() -> None:
    """One name, two adapters: neither is release 1."""
    answers = {n: Hashed(request="q", root=a_root(k)) for k, n in enumerate("ab", start=1)}
    with pytest.raises(RootMismatch, match=f"a: {a_root(1)}; b: {a_root(2)}"):
        agreed(answers, "file:///m/chat")


def test_unverified_adapter_has_a_root_that_no_bytes_have() -> None:
    """It stands for name and path, and the release says what it is."""
    one, other = adopted("chat", "/m/1"), adopted("chat", "/m/2")
    assert one.root != other.root
    release = compose(SERVICE, {Component.ADAPTER: one}, known=(), stable=None, by=Actor())
    assert ("chat", {}) == (release.engine_name, release.staged)
    assert "unverified" in release.unverified
    assert release == decode(encode(release), Release)
    assert "" == next(iter(a_service().releases.values())).unverified


# -- services that exist -------------------------------------------------------------------------


def test_service_that_serves_this_very_adapter_may_be_imported_again() -> None:
    """The same wish twice is one."""
    served = a_service(route=a_route())
    refuse_known(served, an_adapter(1))
    refuse_known(Service(name="new"), an_adapter(1))

    with pytest.raises(TransitionError):
        refuse_known(served, an_adapter(2))


def test_service_that_serves_another_is_refused() -> None:
    """An import makes the first release, and no other."""
    with pytest.raises(TransitionError, match="with 2 releases") as refused:
        refuse_known(a_service(route=a_route()), an_adapter(9))
    assert "vctl rollout start" in refused.value.hint


# -- leaving -------------------------------------------------------------------------------------


def let_go(**route: Any) -> Service:
    """Return a service that was let go at release 1."""
    service = a_service(route=a_route(**route))
    done = ejecting.eject(service, ejecting.refuse(service), ASKED)
    return msgspec.structs.replace(
        service, spec=done.spec, spec_revision=9, route=None, route_revision=0, route_bytes=b""
    )


def test_stable_release_is_what_engines_are_left_with() -> None:
    """And the history says who did it."""
    service = a_service(route=a_route())
    stable = ejecting.refuse(service)
    done = ejecting.eject(service, stable, ASKED)
    assert 1 == stable.number
    assert service.route == done.spec.retired
    assert ("q", "leaving", 0) == (done.entry.rollout, done.entry.reason, done.entry.seq)
    assert "ejected: engines serve release 1" in done.entry.sentence


def test_what_was_revoked_outlives_the_service() -> None:
    """Else it could be rolled out the day after."""
    service = let_go(revoked=(2,))
    assert (1, (2,), 0) == (
        service.ejected,
        service.current_route.revoked,
        service.current_route.stable,
    )
    with pytest.raises(TransitionError, match="revoked"):
        operate.start(service, a_plan(), wish=2, roster=NODES, request=ASKED)


def test_service_that_was_let_go_comes_back_by_a_rollout() -> None:
    """With the numbers that it had; nothing served before, as far as vctl knows."""
    begun = operate.start(let_go(), a_plan(), wish=1, roster=NODES, request=ASKED)
    assert isinstance(begun, Begin)
    assert (0, 1) == (begun.rollout.from_release, begun.rollout.to_release)
    third = operate.start(let_go(), a_plan(), wish=an_adapter_wish(7), roster=NODES, request=ASKED)
    assert isinstance(third, Begin)
    assert 3 == third.rollout.to_release


def test_mode_outlives_the_service_too() -> None:
    """It is the service's, whatever route it has."""
    service = let_go(mode=Mode.DIRECT)
    spec = ServiceSpec(service=SERVICE, mode=Mode.DIRECT, retired=service.spec.retired)  # type: ignore[union-attr]
    assert msgspec.structs.replace(service, spec=spec).is_direct


@pytest.mark.parametrize(
    ("service", "told"),
    [
        (a_service(route=a_route(), rollout=a_rollout(RolloutPhase.SOAKING)), "is soaking"),
        (a_service(), "serves nothing"),
        (a_service(route=a_route(overrides=(Override(group="g", release=2),))), "groups"),
        (let_go(), "was let go already"),
    ],
)
def test_service_that_cannot_be_let_go_now_says_why(service: Service, told: str) -> None:
    """Nothing half done."""
    with pytest.raises(TransitionError, match=told):
        ejecting.refuse(service)


def test_release_of_the_base_alone_has_no_name_to_keep() -> None:
    """Engines serve it under the base's name anyhow."""
    prompt = compose(SERVICE, {Component.PROMPT: an_adapter(1)}, known=(), stable=None, by=Actor())
    service = msgspec.structs.replace(a_service(route=a_route()), releases={1: prompt})
    with pytest.raises(TransitionError, match="base model's own answer"):
        ejecting.refuse(service)


def test_service_that_moved_on_meanwhile_is_not_let_go() -> None:
    """Engines were given what it served before."""
    before = ejecting.refuse(a_service(route=a_route()))
    with pytest.raises(TransitionError, match="serves by now"):
        ejecting.eject(a_service(route=a_route(stable=2)), before, ASKED)
