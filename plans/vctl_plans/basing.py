"""What a start has to do with the fleet's base: whether it changes it, may, and the lock on it.

All services of a fleet share one base, so a base that changes takes it from every release that was
made for the one before. Hence a rollout that changes it is alone: it locks the base in the
transaction that starts it, every start compares the base, and its end unlocks it.
"""

import msgspec

from vctl_plans.base import Base, base_root
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import NAMED, Rollout, listed
from vctl_plans.route import Consistency
from vctl_plans.snapshot import Service


def wave_size(service: Service, plan: Plan, target: Release, roster: tuple[str, ...]) -> int:
    """Return how many nodes may be without a base at once; 0: the base does not change.

    Raises:
        PlanError: It changes, and this plan, these nodes or another service do not allow it.
        TransitionError: Another rollout changes it, or other rollouts run.
    """
    _refuse_locked(service)
    if not moves_base(service, target):
        return 0
    _refuse_others(service)
    _refuse_groups(service)
    _refuse_fixed(service)
    size = max(1, plan.max_unavailable.of(len(roster)))
    if service.current_route.stable:
        _refuse_plan(plan, size, len(roster))
    return size


def moves_base(service: Service, target: Release) -> bool:
    """Whether nodes must change their base for *target*."""
    held = base_root(service.stable) if service.stable else service.around.base.root
    return base_root(target) != held


def locked(service: Service, rollout: Rollout) -> Base | None:
    """Return the base as a start leaves it; None: as it is."""
    base = service.around.base
    lock = _name(rollout) if rollout.moves_base else ""
    is_own = base.lock.startswith(f"{service.name}/")  # of a rollout that is superseded
    if not lock and not is_own:
        return None
    return msgspec.structs.replace(base, lock=lock)


def released(service: Service, before: Rollout, after: Rollout) -> Base | None:
    """Return the base as the end of a rollout leaves it; None: as it is."""
    if not before.moves_base or not after.phase.is_terminal:
        return None
    stable = service.current_route.stable
    serving = {"converged": after.to_release, "rolled_back": after.back_to}
    number = serving.get(after.phase.value, stable)
    return Base(root=base_root(service.releases.get(number)))


def _name(rollout: Rollout) -> str:
    return f"{rollout.service}/{rollout.id}"


def _refuse_locked(service: Service) -> None:
    lock = service.around.base.lock
    holder, _, rollout = lock.partition("/")
    if lock and holder != service.name:
        raise TransitionError(
            f"rollout {rollout} of {holder} changes the base of all nodes: nothing else starts",
            hint=f"follow it: vctl rollout watch --service {holder}",
        )


def _refuse_others(service: Service) -> None:
    around = service.around
    if around.running:
        raise TransitionError(
            f"the base of all nodes would change, and rollouts run of {listed(around.running)}",
            hint="wait until they have ended",
        )
    if around.serving:
        raise PlanError(
            "the base of all nodes would change, and that of"
            f" {listed(around.serving)}, which serves too, would be gone",
            path="release.weights",
            hint="bring it on the base that they have, or on a fleet of its own",
        )


def _refuse_groups(service: Service) -> None:
    if service.current_route.overrides:
        raise TransitionError(
            f"groups of {service.name} have a release of their own, whose base would be gone",
            hint="see them: vctl route show; end what they have: vctl route override rm",
        )


def _refuse_fixed(service: Service) -> None:
    fixed = service.around.fixed
    if fixed:
        raise PlanError(
            f"the engine cannot change its base while it runs on {listed(fixed[:NAMED])}",
            path="release.weights",
        )


def exchange_size(plan: Plan, roster: tuple[str, ...]) -> int:
    """Return how many nodes may be without an adapter at once, where each has place for one.

    Raises:
        PlanError: The plan splits traffic over nodes of which none would hold one of its releases.
    """
    size = max(1, plan.max_unavailable.of(len(roster)))
    if size >= len(roster) and plan.strategy == "weighted":
        raise PlanError(
            "traffic cannot be split: no node would hold the one release while all hold the other",
            path="strategy",
            hint="use full-switch",
        )
    return size


def _refuse_plan(plan: Plan, size: int, nodes: int) -> None:
    if plan.consistency is Consistency.STRICT:
        raise PlanError("a change of the base goes by waves, and not at once", path="consistency")
    if plan.groups:
        raise PlanError(
            "a change of the base is for all traffic, as traffic follows the nodes",
            path="strategy",
            hint="use full-switch or weighted",
        )
    if size >= nodes:
        few = "1 node is" if nodes == 1 else f"{nodes} nodes are"
        raise PlanError(
            f"{few} present, and {size} would be without a base at once: nothing would serve",
            path="gate.max_unavailable",
        )
