"""What can happen to a rollout."""

from collections.abc import Mapping

import msgspec

from vctl_plans.node import NodeReport
from vctl_plans.release import Actor
from vctl_plans.watching import Watching


class Observed(msgspec.Struct, frozen=True):
    """The conductor looked at the fleet."""

    reports: Mapping[str, NodeReport]  # of nodes that are present; by node
    gone: frozenset[str] = frozenset()  # absent for longer than a route may take to converge
    watching: Watching | None = None  # of a step that soaks under guardrails
    others: tuple[str, ...] = ()  # other services of the fleet that serve, or whose rollouts run
    drained: frozenset[str] = frozenset()  # by an operator, as they said last; also who is away


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    by: Actor = Actor()
    reason: str = ""


class RollbackAsked(_Asked, frozen=True, kw_only=True):
    """An operator wants traffic off what the rollout brought, at once."""

    target: int
    request: str
    revokes: bool = True  # what traffic leaves


class AbortAsked(_Asked, frozen=True, kw_only=True):
    """An operator gives the rollout up; what it brought is not revoked."""


class PauseAsked(_Asked, frozen=True, kw_only=True):
    """An operator stops a rollout where it is; traffic stays as it is."""


class PromoteAsked(_Asked, frozen=True, kw_only=True):
    """An operator ends the soak of the present step, or lets a manual step go on."""

    is_full: bool = False  # to the last step at once


class ResumeAsked(_Asked, frozen=True, kw_only=True):
    """An operator lets a paused rollout go on."""


class SupersedeAsked(_Asked, frozen=True, kw_only=True):
    """An operator puts a newer plan in the place of one that still prepares."""


class TakenOver(msgspec.Struct, frozen=True):
    """A new conductor goes on with the phase."""

    takeovers: int  # of this phase, this one included


Steer = AbortAsked | PauseAsked | PromoteAsked | ResumeAsked
"""What an operator may say to a rollout that runs, and that changes nothing but the rollout."""

Event = Observed | RollbackAsked | Steer | SupersedeAsked | TakenOver
EVENTS = (
    Observed,
    RollbackAsked,
    AbortAsked,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    SupersedeAsked,
    TakenOver,
)
