"""How a release comes to its nodes: beside what serves, in its place, or on another base."""

from collections.abc import Callable

import msgspec

from vctl_plans import admission, basing, capacity
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import Roster
from vctl_plans.snapshot import Service
from vctl_plans.waves import by_waves_of


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The place that was found."""

    wave_size: int = 0  # nodes that change at once what they hold; 0: they hold both releases
    fit: capacity.Fit = capacity.Fit()
    notes: tuple[str, ...] = ()  # for whoever starts it


def place(service: Service, plan: Plan, target: Release, roster: Roster) -> Placed:
    """Return the place of *target* on the roster's nodes.

    Raises:
        PlanError: It changes the nodes' base, and cannot; or engines do not take it, or have no
            place for it.
        TransitionError: Another rollout changes the base now.
    """
    notes: tuple[str, ...] = ()
    if plan.strategy != "rollback":  # what served before is not kept from serving by a name
        capacity.refuse_rank(service, target)
        notes = admission.admit(service, target)
    wave_size = basing.wave_size(service, plan, target, roster.nodes)
    if wave_size:
        return Placed(wave_size=wave_size, notes=notes)
    found = capacity.fit(service, target, allow_downtime=plan.allow_downtime)
    size = basing.exchange_size(plan, roster.nodes) if found.exchanges else 0
    return Placed(wave_size=size, fit=found, notes=(*notes, *found.notes))


def checks(
    service: Service, plan: Plan, target: Release, roster: Roster
) -> tuple[Callable[[], object], ...]:
    """Return what `place` refuses, in order; each raises why. A dry run tells of all of them."""
    named: tuple[Callable[[], object], ...] = (
        lambda: capacity.refuse_rank(service, target),
        lambda: admission.admit(service, target),
    )
    return (
        *(named if plan.strategy != "rollback" else ()),
        lambda: basing.wave_size(service, plan, target, roster.nodes),
        lambda: capacity.fit(service, target, allow_downtime=plan.allow_downtime),
        lambda: place(service, plan, target, roster),
    )


def first_sentence(target: Release, roster: Roster, placed: Placed, *, is_first: bool) -> str:
    """Return what is done first, and what it takes where nodes change what they hold.

    Args:
        target: The release.
        roster: The nodes.
        placed: Its place.
        is_first: Whether nothing serves yet.
    """
    nodes, size = len(roster.nodes), placed.wave_size
    said = f"release {target.number} is prepared on {nodes} nodes"
    if placed.fit.gives_way:
        numbers = ", ".join(str(n) for n in placed.fit.gives_way)
        said += f"; {numbers}, kept for an instant rollback, gives way to it"
    if not size or is_first:
        return said
    if not placed.fit.exchanges:
        return f"{said}; its base goes to them {by_waves_of(size)}"
    said += f"; they unload what serves before they load it, {by_waves_of(size)}"
    return said + (": nothing serves meanwhile" if size >= nodes else "")
