"""What a start would come to, decided as `operate.start` decides it, with nothing written.

The rule to keep: nothing is judged here. A refusal is the one that the start itself raises; where
it would raise the first of several, all of them are found by the same checks.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from vctl_plans import operate, placing
from vctl_plans.errors import InvariantError, VctlError
from vctl_plans.golden import Golden
from vctl_plans.groups import Groups
from vctl_plans.operate import AlreadyDone, Attach, Begin, Request
from vctl_plans.phase import Component
from vctl_plans.plan import Plan
from vctl_plans.release import Artifact, Release
from vctl_plans.rollout import Roster
from vctl_plans.snapshot import Service
from vctl_plans.wishing import roots, wished


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """What a start would come to."""

    decision: Begin | Attach | AlreadyDone | None  # None: it would be refused
    refusals: tuple[VctlError, ...] = ()  # the first is the one that the start would give
    target: Release | None = None  # None: there is none
    is_new: bool = False  # whether the start would make it


def foresee(
    service: Service,
    plan: Plan,
    *,
    wish: Mapping[Component, Artifact] | int,
    roster: tuple[str, ...],
    request: Request,
    supersede: bool = False,
    groups: Groups | None = None,
    golden: Golden | None = None,
) -> Foresight:
    """Return what `operate.start` would come to; the arguments are those of it."""
    try:
        decision = operate.start(
            service, plan, wish=wish, roster=roster, request=request, supersede=supersede,
            groups=groups, golden=golden,
        )  # fmt: skip
    except InvariantError:
        raise
    except VctlError as first:
        try:
            target, new = wished(service, plan, wish, request)
        except VctlError:
            return Foresight(decision=None, refusals=(first,))
        plan = msgspec.structs.replace(plan, target=roots(target, wish))
        more = _raised(
            [
                *operate.checks(service, plan, target, roster, supersede=supersede),
                *placing.checks(service, plan, target, Roster(nodes=roster)),
            ]
        )
        told = {first.message: first} | {each.message: each for each in more}
        return Foresight(
            decision=None, refusals=tuple(told.values()), target=target, is_new=new is not None
        )
    brings = service.releases.get(decision.rollout.to_release)
    made = decision.release if isinstance(decision, Begin) else None
    return Foresight(decision=decision, target=made or brings, is_new=made is not None)


def _raised(checks: Iterable[Callable[[], object]]) -> list[VctlError]:
    found: list[VctlError] = []
    for check in checks:
        try:
            check()
        except VctlError as why:
            found.append(why)
    return found
