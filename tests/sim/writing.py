"""One write of a rollout, taken apart for the checks."""

import msgspec

from tests.builders import SERVICE
from tests.sim.facts import Wrote
from tests.sim.world import KEYS
from vctl_plans.rollout import Entry, Rollout
from vctl_plans.route import Route
from vctl_plans.store.port import Put
from vctl_plans.written import Written

_ROLLOUT, _ROUTE = KEYS.rollout(SERVICE), KEYS.route(SERVICE)
_RELEASES, _HISTORY = KEYS.releases(SERVICE), KEYS.history(SERVICE)


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction changed of the service."""

    before: Written
    after: Written
    entries: list[Entry]
    has_release: bool
    by_conductor: bool

    @property
    def new_serving(self) -> frozenset[int]:
        """The releases that get traffic and had none, or that get more."""
        was, now = self.before.route, self.after.route
        if now is None or was == now:
            return frozenset()
        fresh = now.serving - (was.serving if was else frozenset())
        grows = was is not None and now.candidate == was.candidate and now.weight > was.weight
        return fresh | ({now.candidate} if grows else frozenset())

    @property
    def brought(self) -> frozenset[int]:
        """The releases that somebody gets now who got another before."""
        was, now = self.before.route, self.after.route
        if now is None or was == now:
            return frozenset()
        overrides = set(now.overrides) - set(was.overrides if was else ())
        own = {override.release for override in overrides}
        # What groups had of their own may come to all others, too.
        return self.new_serving | own | (now.default - (was.default if was else frozenset()))

    @property
    def is_retained(self) -> bool:
        """Whether traffic moves to what was loaded all the time."""
        was = self.before.route
        return was is not None and self.new_serving <= set(was.instant)

    @property
    def new_unload(self) -> frozenset[int]:
        """What the rollout allows to be unloaded, and did not before, once its traffic moved."""
        then, now = self.before.rollout, self.after.rollout
        if then is None or now is None or then.id != now.id or not now.has_moved:
            return frozenset()
        return frozenset(now.unload) - frozenset(then.unload)


def writing_of(fact: Wrote, before: Written) -> Writing | None:
    """Return what a transaction wrote of the rollout, or None when it is no decision."""
    rollout = route = None
    entries = []
    has_release = False
    for operation in fact.txn.operations:
        if not isinstance(operation, Put):
            continue
        key, value = operation.key, operation.value
        if key == _ROLLOUT:
            rollout = msgspec.json.decode(value, type=Rollout)
        elif key == _ROUTE:
            route = msgspec.json.decode(value, type=Route)
        elif key.startswith(_RELEASES):
            has_release = True
        elif key.startswith(_HISTORY) and not key.endswith("/end"):
            entries.append(msgspec.json.decode(value, type=Entry))
    if rollout is None and route is None:
        return None
    after = Written(
        rollout=rollout or before.rollout,
        route=route or before.route,
        route_revision=fact.revision if route else before.route_revision,
    )
    return Writing(
        before=before,
        after=after,
        entries=entries,
        has_release=has_release,
        by_conductor=fact.grounds is not None,
    )
