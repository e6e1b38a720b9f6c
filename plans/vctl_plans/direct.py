"""Direct mode: clients call the engines themselves, by the service's own name.

No gateway chooses, so one name stands for one release at a time, on each node for itself. Before a
switch the release lies on every node's disk, verified: that is all that *ready* can mean here, for
one name holds one adapter. At the switch each agent acts on the route: it has its engine replace
the adapter with nothing of the former one left in a cache, looks at what the engine lists, and
probes; only then does the node report the route. A node whose probe fails goes back by itself to
what served before, if that is known, and reports why.

The hard decision: the rollout's machine knows none of this. A start refuses what needs a gateway,
and the rest is what a node reports. (`node_machine.MOVES` is of releases behind gateways: here a
release is ready as soon as it is staged, and is loaded after that.)
"""

import msgspec

from vctl_plans.errors import PlanError
from vctl_plans.node_machine import Action, Failure, Verdict, failed, probed_again
from vctl_plans.phase import Component, NodePhase
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import NAMED, listed
from vctl_plans.route import Consistency, Route
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.snapshot import Service

STAGED = "staged: it takes the name at the switch"
"""What a node says with a release that a rollout brings, is ready, and is not held yet."""

_STRATEGIES = {"full-switch", "rollback"}


def active(route: Route) -> int:
    """Return the release that an engine is to hold under the service's name; 0: none yet."""
    is_switched = route.candidate and route.weight == FULL_WEIGHT
    return route.candidate if is_switched else route.stable


def fallback(route: Route) -> int:
    """Return what a node holds that cannot hold the active one: what served before; 0: nothing."""
    return route.stable if route.stable != active(route) else 0


def refuse(service: Service, plan: Plan, target: Release) -> None:
    """Refuse what cannot be done without a gateway, or by the engines that are there.

    Raises:
        PlanError: The field, and why.
    """
    if not service.is_direct:
        return
    why = f"clients of {service.name} call the engines themselves (direct mode)"
    has_adapter = target.adapter is not None
    others = sorted(name.value for name in target.components if name is not Component.ADAPTER)
    refusals = (
        (plan.strategy not in _STRATEGIES, "strategy",
         f"{why}: nobody splits their traffic; use full-switch or rollback"),
        (plan.watch is not None, "guardrails", f"{why}: nobody counts their requests"),
        (plan.consistency is Consistency.STRICT, "consistency",
         f"{why}: nobody can hold their requests"),
        (bool(others), f"release.{others[0] if others else ''}",
         f"{why}: only an adapter can be switched for them"),
        (not has_adapter, "release", f"{why}, by the name of an adapter: it has none"),
        (bool(target.unverified), "release",
         f"{why}, and what was adopted unverified could not be put back"),
    )  # fmt: skip
    for is_so, path, said in refusals:
        if is_so:
            raise PlanError(said, path=path)
    unable = service.around.named_once
    if unable:
        raise PlanError(
            "the engine cannot give a name another adapter while it runs on"
            f" {listed(unable[:NAMED])}",
            path="service",
            hint="serve it through gateways, or start those engines so that they can",
        )


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one release of a service in direct mode on this node, just now."""

    is_wanted: bool
    is_active: bool  # the engine is to hold it under the service's name now
    is_staged: bool
    is_held: bool  # the engine lists the service's name from the release's directory
    is_probed: bool  # and it was probed since
    is_due: bool = False  # see `node_machine.Facts`
    is_coming: bool = False  # a rollout that runs is to bring it, or to bring it back
    failure: Failure | None = None
    suspect: str = ""  # see `node_machine.Facts`


def assess(facts: Facts) -> Verdict:
    """Return where the release is and the next thing to do for it."""
    if facts.suspect and (facts.is_held or facts.is_wanted):
        return Verdict(NodePhase.QUARANTINED, reason=facts.suspect)
    return _turn(facts) if facts.is_wanted else _left(facts)


def _turn(facts: Facts) -> Verdict:
    failure = facts.failure
    if failure and (failure.is_permanent or failure.retry_in_s > 0):
        is_serving = facts.is_active and facts.is_probed and facts.is_due
        return probed_again(failure) if is_serving else failed(failure)
    if facts.is_active and facts.is_held:
        return _held(facts)
    if not facts.is_staged:
        return Verdict(NodePhase.FETCHING, Action.STAGE)
    if facts.is_active:
        return Verdict(NodePhase.LOADING, Action.REPLACE)
    return Verdict(NodePhase.READY, reason=STAGED if facts.is_coming else "")


def _held(facts: Facts) -> Verdict:
    if not facts.is_probed:
        return Verdict(NodePhase.PROBING, Action.PROBE)
    return Verdict(NodePhase.READY, Action.PROBE if facts.is_due else Action.NONE)


def _left(facts: Facts) -> Verdict:
    """Judge what is not wanted: it goes when another takes its name, and not before."""
    if facts.is_held:
        return Verdict(NodePhase.DRAINING, reason="another release takes its name")
    tried = facts.failure
    return Verdict(NodePhase.FAILED, reason=tried.reason) if tried else Verdict(NodePhase.UNLOADED)
