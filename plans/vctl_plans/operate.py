"""What an operator's command comes to, decided on a reading of the service (DESIGN sections 7, 11).

Each function returns what is to be written, or says that it already is so, or refuses; nothing is
written here. Whoever writes compares the revisions of the reading, and decides again on conflict.
"""

from collections.abc import Callable, Mapping

import msgspec

from vctl_plans import basing, direct
from vctl_plans.alert import Alert
from vctl_plans.base import Base
from vctl_plans.decision import State
from vctl_plans.errors import PlanError, TransitionError, VctlError
from vctl_plans.events import SupersedeAsked
from vctl_plans.golden import Golden, refuse_serving
from vctl_plans.groups import Groups
from vctl_plans.machine import step
from vctl_plans.phase import Component, RolloutPhase
from vctl_plans.placing import first_sentence, place
from vctl_plans.plan import Plan
from vctl_plans.release import Actor, Artifact, Release
from vctl_plans.rollout import Cause, Rollout, Roster, wanted
from vctl_plans.route import Route, override_of, place_of, without
from vctl_plans.seen import Seen
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.snapshot import Service
from vctl_plans.wishing import roots, wished


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and the id by which they find their own write again."""

    id: str
    by: Actor = Actor()
    reason: str = ""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A new rollout is to be written, in one transaction with all that it needs."""

    plan: Plan
    rollout: Rollout
    roster: Roster
    replaced: Rollout | None = None  # archived, as it is to stand in the archive
    release: Release | None = None  # a new one
    groups: Groups | None = None  # those that the plan names by digest
    golden: Golden | None = None  # likewise
    route: Route | None = None  # where the route changes at once
    base: Base | None = None  # where the fleet's base is locked, or no longer is
    notes: tuple[str, ...] = ()  # what whoever asks should know, and nothing refuses


class Attach(msgspec.Struct, frozen=True):
    """The same wish is already being carried out: follow it."""

    rollout: Rollout


class AlreadyDone(msgspec.Struct, frozen=True):
    """The same wish has already converged."""

    rollout: Rollout


class Continue(msgspec.Struct, frozen=True):
    """The running rollout takes another turn."""

    before: Rollout
    rollout: Rollout
    route: Route | None
    alerts: tuple[Alert, ...] = ()  # beside the one that the decision itself deserves
    seen: Seen | None = None  # what the conductor saw, for the history


def start(
    service: Service,
    plan: Plan,
    *,
    wish: Mapping[Component, Artifact] | int,
    roster: tuple[str, ...],
    request: Request,
    supersede: bool = False,
    groups: Groups | None = None,
    golden: Golden | None = None,
) -> Begin | Attach | AlreadyDone:
    """Decide what `rollout start` writes.

    Args:
        service: The service as read.
        plan: The plan, without targets yet where *wish* is a number.
        wish: The components to bring, or the number of a release that exists; for a rollback
            plan, the release to return to, or 0 for the last good one.
        roster: The nodes that are present now, sorted.
        request: Who asks.
        supersede: Put this plan in the place of one that still prepares.
        groups: Those that the plan names by their digest.
        golden: The golden prompts that it names likewise.

    Raises:
        PlanError: The release does not exist, or nothing would be served by anyone.
        TransitionError: Another rollout runs, or the target may not be served.
        VctlError: What is there now cannot be read.
    """
    refuse_unreadable(service)
    if service.rollout and is_own(service.rollout, request):
        return Attach(service.rollout)
    running = running_rollout(service)
    if plan.strategy == "rollback" and wish == 0:
        exists = _rollback_that_exists(service)
        if exists:
            return exists
        _refuse_past_groups(service)
    target, new = wished(service, plan, wish, request)
    plan = msgspec.structs.replace(plan, target=roots(target, wish))
    same = _same_wish(service, plan, target)
    if same:
        return same
    for check in checks(service, plan, target, roster, supersede=supersede):
        check()
    replaced = _superseded(service, running, request) if running else service.rollout
    begun = beginning(
        service, plan, target, request, roster=Roster(nodes=roster), replaced=replaced
    )
    return msgspec.structs.replace(begun, release=new, groups=groups, golden=golden)


def checks(
    service: Service, plan: Plan, target: Release, roster: tuple[str, ...], *, supersede: bool
) -> tuple[Callable[[], object], ...]:
    """Return what a start refuses before it looks for a place, in order; each raises why.

    They stand in one list, so that a dry run can tell of all that stops a start, and not only of
    the first.
    """
    return (
        lambda: refuse_revoked(service, target),
        lambda: _refuse_second(service, supersede=supersede),
        lambda: refuse_nobody(roster),
        lambda: _refuse_unmeetable(service, plan, roster),
        lambda: direct.refuse(service, plan, target),
        lambda: refuse_serving(target, service.current_route, service.rollout, plan.probes),
    )


def _refuse_second(service: Service, *, supersede: bool) -> None:
    """Refuse a start while another rollout runs, unless it takes the place of one that prepares."""
    running = running_rollout(service)
    if running is None:
        return
    if supersede:
        _superseded(service, running, Request(id=""))
        return
    is_early = running.phase is RolloutPhase.PREPARING
    raise TransitionError(
        f"rollout {running.id} of {running.service} is {running.phase}",
        hint=f"follow it: vctl rollout watch --service {running.service};"
        " or end it first: vctl rollout abort, vctl rollback --now"
        + (", or --supersede" if is_early else ""),
    )


def _refuse_unmeetable(service: Service, plan: Plan, roster: tuple[str, ...]) -> None:
    """Refuse what could never come about."""
    if plan.ready.of(len(roster)) > len(roster):
        raise PlanError(
            f"{plan.ready} nodes are to be ready, and {len(roster)} are present", path="gate.ready"
        )
    if plan.groups and not service.current_route.stable:
        raise PlanError(
            f"service {service.name} serves nothing yet, so all but the groups would get nothing",
            path="strategy",
            hint="bring its first release by full-switch",
        )


def beginning(
    service: Service,
    plan: Plan,
    target: Release,
    request: Request,
    *,
    roster: Roster,
    replaced: Rollout | None,
) -> Begin:
    """Return the beginning of a rollout that brings *target*, as a release that exists.

    Raises:
        PlanError: It changes the nodes' base, and cannot; or engines do not take it, or have no
            place for it.
        TransitionError: Another rollout changes it now.
    """
    goes_back, route = plan.strategy == "rollback", service.current_route
    placed = place(service, plan, target, roster)
    gives_way = placed.fit.gives_way
    rollout = Rollout(
        id=request.id,
        service=service.name,
        plan=plan.digest,
        strategy=plan.strategy,
        phase=RolloutPhase.PREPARING,
        from_release=route.stable,
        to_release=target.number,
        back_to=target.number if goes_back else 0,
        cause=Cause.ASKED if goes_back else Cause.NONE,
        roster=roster.digest,
        roster_size=len(roster.nodes),
        steps=len(plan.steps),
        probes=plan.probes,
        groups=plan.groups,
        from_override=override_of(route, plan.groups),
        from_place=place_of(route, plan.groups),
        wave_size=placed.wave_size,
        wave=FULL_WEIGHT if placed.wave_size and not route.stable else 0.0,
        exchanges=placed.fit.exchanges,
        retain=placed.fit.retain,
        free_memory=plan.free_memory,
        asks_kv=plan.kv_used is not None,
        watches=plan.watch is not None,
        drain_s=plan.drain_s,
        unload=tuple(sorted({*_handed_on(service, replaced, target), *gives_way})),
        sentence=first_sentence(target, roster, placed, is_first=not route.stable),
        request=request.id,
        by=request.by,
        reason=request.reason,
    )
    return Begin(
        plan=plan,
        rollout=rollout,
        roster=roster,
        replaced=replaced,
        route=without(route, gives_way),
        base=basing.locked(service, rollout),
        notes=placed.notes,
    )


def refuse_nobody(roster: tuple[str, ...]) -> None:
    """Refuse a rollout that would count no node."""
    if not roster:
        raise PlanError("no node is present: a rollout counts at least one", path="fleet")


def _handed_on(service: Service, replaced: Rollout | None, target: Release) -> tuple[int, ...]:
    """Return what the rollout that is replaced left to be unloaded, and nothing wants now."""
    keep = wanted(service.route, None) | {target.number}
    return tuple(n for n in (replaced.unload if replaced else ()) if n not in keep)


def refuse_unreadable(service: Service) -> None:
    """Refuse to replace what cannot be read: it would lose what it says, as what is revoked."""
    for what, value, revision in (
        ("rollout", service.rollout, service.rollout_revision),
        ("route", service.route, service.route_revision),
    ):
        if revision and value is None:
            raise VctlError(
                f"the {what} of {service.name} cannot be read: nothing is written over it",
                hint="a newer vctl, or another program, wrote it: vctl status names the problem",
            )


def running_rollout(service: Service) -> Rollout | None:
    """Return the service's rollout unless it has ended."""
    rollout = service.rollout
    return rollout if rollout and not rollout.phase.is_terminal else None


def _same_wish(service: Service, plan: Plan, target: Release) -> Attach | AlreadyDone | None:
    """Return what the wish already came to: a rollout that runs, or one that converged."""
    rollout = service.rollout
    if not rollout or rollout.plan != plan.digest or rollout.to_release != target.number:
        return None
    if not rollout.phase.is_terminal:
        return Attach(rollout)
    return AlreadyDone(rollout) if _is_done(service, rollout, target.number) else None


def _is_done(service: Service, rollout: Rollout, number: int) -> bool:
    """Whether *rollout* ended as asked with *number* serving, confirmed by every node.

    Where nodes did not confirm, the same plan started again asks those that are present now.
    """
    ends = {RolloutPhase.CONVERGED, RolloutPhase.ROLLED_BACK}
    serves = service.route is not None and _serving(service.route, rollout) == number
    return rollout.phase in ends and serves and not rollout.unconfirmed


def _serving(route: Route, rollout: Rollout) -> int:
    """Return the release that serves those whom the rollout was for."""
    is_of_groups = rollout.groups and rollout.phase is RolloutPhase.CONVERGED
    return override_of(route, rollout.groups) if is_of_groups else route.stable


def _rollback_that_exists(service: Service) -> Attach | AlreadyDone | None:
    """Return the rollback that a wish for the last good release already came to.

    Asked again, "the last good one" is no longer the same release: it is one further back.
    """
    rollout = service.rollout
    if not rollout or rollout.cause is not Cause.ASKED or not rollout.back_to:
        return None
    if not rollout.phase.is_terminal:
        return Attach(rollout)
    return AlreadyDone(rollout) if _is_done(service, rollout, rollout.back_to) else None


def has_groups(service: Service) -> bool:
    """Whether the last rollout gave groups a release of their own that they still have."""
    rollout, route = service.rollout, service.current_route
    if rollout is None or not rollout.groups or rollout.phase is not RolloutPhase.CONVERGED:
        return False
    return override_of(route, rollout.groups) == rollout.to_release


def _refuse_past_groups(service: Service) -> None:
    """Refuse to take "the last good one" for the default's when what came last was for groups."""
    if has_groups(service):
        raise TransitionError(
            f"the last rollout of {service.name} was for groups: what is to be rolled back?",
            hint="end what the groups have: vctl rollback --now;"
            " or the default's release: vctl rollback --to N",
        )


def refuse_revoked(service: Service, target: Release) -> None:
    """Refuse to serve what was revoked."""
    if target.number in service.current_route.revoked:
        raise TransitionError(
            f"release {target.number} of {service.name} is revoked",
            hint="make a new release of it: vctl release create",
        )


def _superseded(service: Service, running: Rollout, request: Request) -> Rollout:
    state = State(
        plan=Plan(service=service.name, strategy=running.strategy),
        rollout=running,
        route=service.current_route,
        route_revision=service.route_revision,
        roster=(),
    )
    asked = SupersedeAsked(by=request.by, reason=request.reason)
    return step(state, asked, 0.0).rollout


def is_own(rollout: Rollout, request: Request) -> bool:
    """Whether *request* is written already, and only the reply was lost."""
    return request.id in {rollout.id, rollout.request}


def state_of(service: Service, rollout: Rollout, route: Route) -> State:
    """Return what an operator's event is decided on: no event of theirs rests on the plan."""
    return State(
        plan=Plan(service=service.name, strategy=rollout.strategy),
        rollout=rollout,
        route=route,
        route_revision=service.route_revision,
        roster=(),
    )
