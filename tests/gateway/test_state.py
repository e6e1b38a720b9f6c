import msgspec

from tests.gateway.hopping import peers_at
from tests.gateway.support import KEYS, SERVICE, a_release, a_root, a_route, overridden, ready
from vctl_agent.gateway.state import (
    Known,
    RouteAt,
    Unreadable,
    applied,
    forwardable,
    is_behind,
    loaded,
    newly_unreadable,
    refused,
    supplied,
    targets,
    unready,
)
from vctl_plans.codec import encode
from vctl_plans.groups import Group, Groups
from vctl_plans.peers import Peers
from vctl_plans.phase import Component
from vctl_plans.release import Actor, Artifact, Release, compose
from vctl_plans.route import Hold, Mode, Stage
from vctl_plans.routing import cache_salt
from vctl_plans.store.port import KeyValue, Update


def an_update(revision: int, **values: tuple[bytes, int]) -> Update:
    """Make an update of keys under the services prefix, as key=(value, mod_revision)."""
    entries = {
        key: KeyValue(key, value, create_revision=1, mod_revision=at)
        for key, (value, at) in ((KEYS.services + k, v) for k, v in values.items())
    }
    return Update(revision, entries, frozenset(entries))


def support(route: object = None, *, at: int = 5, number: int = 1) -> dict[str, tuple[bytes, int]]:
    return {
        f"{SERVICE}/route": (encode(route or a_route(1)), at),  # type: ignore[arg-type]
        f"{SERVICE}/releases/{number:08d}": (encode(a_release(number)), 3),
    }


def test_update_gives_routes_with_their_own_revision_and_releases():
    known = applied(Known(), an_update(9, **support(at=5)), KEYS.services)
    assert known.route_revisions() == {SERVICE: 5}
    assert known.releases[SERVICE, 1].release == a_release(1)
    assert known.revision == 9
    assert known.unreadable == ()


def test_other_keys_of_a_service_are_nobodys_business_here():
    others = {f"{SERVICE}/rollout": (b"?", 4), f"{SERVICE}/fuse": (b"?", 4)}
    known = applied(Known(), an_update(9, **support(), **others), KEYS.services)
    assert known.unreadable == ()


def test_unreadable_route_keeps_the_last_good_one_and_no_other_service_notices():
    before = applied(Known(), an_update(9, **support(at=5)), KEYS.services)
    broken = support(at=5) | {f"{SERVICE}/route": (b"{not json", 10)}
    other = {"chat/route": (encode(a_route(4, service="chat")), 10)}
    after = applied(before, an_update(10, **broken, **other), KEYS.services)
    assert after.route_revisions() == {SERVICE: 5, "chat": 10}
    assert [each.key for each in after.unreadable] == [KEYS.route(SERVICE)]


def test_unreadable_release_keeps_the_last_good_one():
    before = applied(Known(), an_update(9, **support()), KEYS.services)
    broken = support() | {f"{SERVICE}/releases/00000001": (b"[]", 10)}
    after = applied(before, an_update(10, **broken), KEYS.services)
    assert after.releases[SERVICE, 1].release == a_release(1)
    assert len(after.unreadable) == 1


def test_value_of_another_service_under_a_key_is_unreadable():
    known = applied(Known(), an_update(9, **support(a_route(1, service="other"))), KEYS.services)
    assert known.routes == {}
    assert "'other'" in known.unreadable[0].problem


def test_unreadable_value_is_told_once_a_revision():
    broken = {f"{SERVICE}/route": (b"{", 5)}
    first = applied(Known(), an_update(9, **broken), KEYS.services)
    again = applied(first, an_update(10, **broken), KEYS.services)
    assert len(newly_unreadable(Known(), first)) == 1
    assert newly_unreadable(first, again) == []


def test_deleted_route_is_served_no_more():
    before = applied(Known(), an_update(9, **support()), KEYS.services)
    after = applied(before, an_update(10), KEYS.services)
    assert after.routes == {}


def test_values_at_a_known_revision_are_not_read_again():
    before = applied(Known(), an_update(9, **support(at=5)), KEYS.services)
    after = applied(before, an_update(12, **support(at=5)), KEYS.services)
    assert after.routes[SERVICE] is before.routes[SERVICE]
    assert after.releases[SERVICE, 1] is before.releases[SERVICE, 1]


def test_what_an_earlier_run_left_is_read_again_at_the_first_update():
    """It may have known fewer fields, and have thrown the others away."""
    saved = Known(routes={SERVICE: RouteAt(5, a_route(1))})
    held = a_route(1, hold=Hold(stage=Stage.HOLD, fence_s=1.0, limit_s=1.0))
    known = applied(saved, an_update(9, **support(held, at=5)), KEYS.services)
    assert known.routes[SERVICE].route == held


def test_groups_complete_only_the_routes_that_name_no_others():
    one, other = (Groups(groups=(Group(name=name),)) for name in ("a", "b"))
    values = support(overridden(1, (one, 2), (other, 3)), at=5)
    values["chat/route"] = (encode(overridden(1, (other, 2), service="chat")), 6)
    known = applied(Known(), an_update(9, **values), KEYS.services)
    assert known.missing() == {one.digest, other.digest}
    known = supplied(known, other.digest, other)
    assert (known.route_revisions(), set(known.waiting)) == ({"chat": 6}, {SERVICE})
    known = supplied(known, one.digest, one)
    assert (known.route_revisions(), known.waiting) == ({"chat": 6, SERVICE: 5}, {})
    assert known.missing() == frozenset()


def test_groups_that_no_route_names_are_not_kept():
    one, other = (Groups(groups=(Group(name=name),)) for name in ("a", "b"))
    known = applied(Known(), an_update(9, **support(overridden(1, (one, 2)))), KEYS.services)
    assert supplied(known, other.digest, other) == known
    known = supplied(known, one.digest, one)
    assert applied(known, an_update(10, **support(at=10)), KEYS.services).groups == {}


def test_route_that_waits_for_refused_groups_is_unreadable_and_said_once():
    one = Groups(groups=(Group(name="a"),))
    values = support(overridden(1, (one, 2)), at=5)
    first = applied(Known(), an_update(9, **values), KEYS.services)
    known = refused(first, one.digest, "broken", KEYS.services)
    assert known.unreadable == (Unreadable(KEYS.route(SERVICE), 5, "broken", one.digest),)
    assert refused(known, one.digest, "broken", KEYS.services) == known
    later = applied(known, an_update(10, **values), KEYS.services)
    assert newly_unreadable(known, later) == []
    rewritten = applied(later, an_update(11, **values | support(at=11)), KEYS.services)
    assert rewritten.unreadable == ()
    assert supplied(later, one.digest, one).unreadable == ()


def test_peers_are_known_by_release_and_digest():
    values = support() | {f"{SERVICE}/peers": (encode(peers_at(["http://a", "http://b"])), 6)}
    known = applied(Known(), an_update(9, **values), KEYS.services)
    assert ["n1", "n2"] == [peer.node for peer in known.peers_of((SERVICE, 1))]
    assert () == known.peers_of((SERVICE, 2))  # its release is not known, so neither its digest
    assert forwardable(known, "n1")
    alone = values | {f"{SERVICE}/peers": (encode(peers_at(["http://a"])), 7)}
    assert not forwardable(applied(known, an_update(10, **alone), KEYS.services), "n1")


def test_unreadable_peers_keep_the_last_good_ones():
    values = support() | {f"{SERVICE}/peers": (encode(peers_at(["http://a"])), 6)}
    before = applied(Known(), an_update(9, **values), KEYS.services)
    for broken in (b"[", encode(Peers(service="chat"))):
        changed = values | {f"{SERVICE}/peers": (broken, 10)}
        after = applied(before, an_update(10, **changed), KEYS.services)
        assert before.peers == after.peers
        assert [KEYS.peers(SERVICE)] == [each.key for each in after.unreadable]


def test_release_is_loaded_though_nothing_routes_it():
    values = support() | {f"{SERVICE}/releases/00000002": (encode(a_release(2)), 3)}
    known = applied(Known(), an_update(9, **values), KEYS.services)
    changed = msgspec.structs.replace(a_release(1), digest="b3:other")
    assert {(SERVICE, 2)} == set(loaded(known, ready(changed, a_release(2), a_release(3))))


def test_store_that_went_back_is_behind():
    known = applied(Known(), an_update(9, **support(at=9)), KEYS.services)
    assert is_behind(known, an_update(8))
    assert not is_behind(known, an_update(9))


def test_release_is_a_target_only_when_routed_and_ready_under_its_digest():
    values = support(a_route(1, candidate=2, weight=10.0))
    values[f"{SERVICE}/releases/00000002"] = (encode(a_release(2)), 3)
    values[f"{SERVICE}/releases/00000003"] = (encode(a_release(3)), 3)
    known = applied(Known(), an_update(9, **values), KEYS.services)
    changed = msgspec.structs.replace(a_release(2), digest="b3:other")
    agent = ready(a_release(1), changed, a_release(3))
    found = targets(known, agent)
    assert set(found) == {(SERVICE, 1)}
    assert unready(known, found) == [f"{SERVICE}/2"]


def test_release_without_a_digest_is_never_a_target():
    nameless = msgspec.structs.replace(a_release(1), digest="")
    values = support() | {f"{SERVICE}/releases/00000001": (encode(nameless), 3)}
    known = applied(Known(), an_update(9, **values), KEYS.services)
    assert targets(known, ready(nameless)) == {}


def test_nothing_is_a_target_before_the_agent_has_spoken():
    known = applied(Known(), an_update(9, **support()), KEYS.services)
    assert targets(known, None) == {}


def test_target_salts_by_tenant_weights_adapter_and_client():
    release = a_release(1, weights=9)
    values = support() | {f"{SERVICE}/releases/00000001": (encode(release), 3)}
    known = applied(Known(), an_update(9, **values), KEYS.services)
    target = targets(known, ready(release))[SERVICE, 1]
    for own in ("", "mine"):
        expected = cache_salt(
            tenant="default",
            weights_root=release.components["weights"].root,  # type: ignore[index]
            adapter_root=release.components["adapter"].root,  # type: ignore[index]
            client_salt=own,
        )
        assert target.salted(own) == expected


def test_new_prompt_or_index_keeps_the_caches():
    """KV is of weights and adapter: one salt, one model, whatever the application reads."""
    known: dict[int, Release] = {}
    artifacts = [Artifact(root=a_root(n), source=f"file:///{n}") for n in range(5)]
    for components in (
        {Component.ADAPTER: artifacts[0], Component.PROMPT: artifacts[1]},
        {Component.PROMPT: artifacts[2]},
        {Component.INDEX: artifacts[3]},
        {Component.ADAPTER: artifacts[4]},
    ):
        made = compose(
            SERVICE, components, known=known.values(), stable=known.get(len(known)), by=Actor()
        )
        known[made.number] = made
    values = {f"{SERVICE}/releases/{n:08d}": (encode(r), 3) for n, r in known.items()}
    found = {}
    for number in known:
        served = values | {f"{SERVICE}/route": (encode(a_route(number)), 5)}
        state = applied(Known(), an_update(9, **served), KEYS.services)
        found[number] = targets(state, ready(*known.values()))[SERVICE, number]
    for client in ("", "mine"):
        salts = [found[n].salted(client) for n in (1, 2, 3, 4)]
        assert salts[0] == salts[1] == salts[2] != salts[3]
    assert found[1].model == found[2].model == found[3].model != found[4].model


def test_direct_service_is_acted_on_and_not_served():
    """It holds nobody's readiness up: its route is known, and none of its releases is served."""
    direct = {"fast/route": (encode(a_route(4, service="fast", mode=Mode.DIRECT)), 10)}
    known = applied(Known(), an_update(10, **support(), **direct), KEYS.services)
    assert {SERVICE: 5, "fast": 10} == known.route_revisions()
    assert [(SERVICE, 1)] == known.serving()
    assert ["support/1"] == unready(known, {})
