from typing import Any

import pytest

from tests.gateway.support import KEYS, a_release, a_route, ready
from tests.gateway.test_state import an_update, support
from vctl_agent.gateway.live import Acted, Live
from vctl_plans.codec import encode
from vctl_plans.errors import RestoredBackup
from vctl_plans.rollout import ServiceSpec
from vctl_plans.store.port import Update


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_live(acted: Acted | None = None, clock: Clock | None = None) -> Live:
    return Live(acted or Acted(), prefix=KEYS.services, clock=clock or Clock())


def two(at: int, **fields: Any) -> dict[str, tuple[bytes, int]]:
    values = support(a_route(1, **fields), at=at)
    return values | {"support/releases/00000002": (encode(a_release(2)), 3)}


def test_broken_watch_changes_nothing_that_is_served():
    clock = Clock()
    live = a_live(clock=clock)
    live.learn(an_update(9, **support()))
    assert (live.is_connected, live.last_contact_s()) == (True, 0.0)
    live.learn(Update(0, {}, frozenset(), is_live=False))
    clock.now_s += 30
    assert live.acted.known.route_revisions() == {"support": 5}
    assert (live.is_connected, live.last_contact_s()) == (False, 30.0)


def test_store_that_went_back_is_refused_and_nothing_of_it_is_taken():
    live = a_live()
    live.learn(an_update(9, **support(at=9)))
    with pytest.raises(RestoredBackup, match="revision 8, behind 9"):
        live.learn(an_update(8))
    assert live.acted.known.route_revisions() == {"support": 9}


def test_readiness_waits_for_all_that_is_routed_then_holds_while_anything_is():
    live = a_live()
    assert live.obstacle() == "nothing is routed"
    live.learn(an_update(9, **two(5, candidate=2, weight=10.0)))
    live.accept(ready(a_release(1)))
    assert live.obstacle() == "not ready here: support/2"
    live.accept(ready(a_release(1), a_release(2)))
    assert live.obstacle() == ""
    live.accept(ready(a_release(1)))
    assert live.obstacle() == ""
    live.accept(ready())
    assert live.obstacle() == "nothing routed can be served here: support/1, support/2"
    live.accept(ready(a_release(2)))
    assert live.obstacle() == ""


def test_passthrough_alone_is_ready_when_an_engine_is_known():
    live = a_live()
    assert live.obstacle(has_passthrough=True) == "nothing is routed"
    live.accept(ready())
    assert live.obstacle(has_passthrough=True) == ""


def test_restart_with_a_saved_state_serves_and_is_ready_at_once():
    before = a_live()
    before.learn(an_update(9, **support()))
    before.accept(ready(a_release(1)))
    live = a_live(before.acted)
    assert set(live.targets) == {("support", 1)}
    assert live.obstacle() == ""
    assert not live.is_connected


def test_whoever_listens_is_told_of_every_change():
    live = a_live()
    rings: list[int] = []
    live.bells.append(lambda: rings.append(1))
    live.learn(an_update(9, **support()))
    live.accept(ready(a_release(1)))
    live.acknowledge(live.acted)
    live.lose_contact()
    live.lose_contact()
    assert len(rings) == 4


def test_services_stay_their_tenants_until_a_restored_store_is_read():
    """Else anybody's key of the tenant `default` would reach them meanwhile."""
    live = a_live()
    spec = encode(ServiceSpec(service="support", tenant="acme"))
    live.learn(an_update(9, **support(), **{"support/spec": (spec, 5)}))
    assert "acme" == live.acted.known.tenant("support")
    live.accept_restored()
    assert "acme" == live.acted.known.tenant("support")
