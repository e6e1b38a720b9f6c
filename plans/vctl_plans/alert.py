"""Which decisions people are alerted to, and what an alert says.

Rule: an operator's own word alerts nobody, whatever it does; what comes of it may. An alert is
written to the store in the transaction of the decision that it tells of, so that a crash between
deciding and sending loses none; it is sent at least once, and its id tells repeats.

`decided` judges a decision. What is to be told without a change of phase, as drift, is made with
`raised` and goes along: in `operate.Continue.alerts` with the turn that it belongs to, or by itself
through `alerting.telling.tell` of the agent. Whoever raises it does so once for each id.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from vctl_plans.codec import Value
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.release import Actor
from vctl_plans.rollout import Cause, Rollout, listed

if TYPE_CHECKING:
    from vctl_plans.drift import Finding  # costs commands that only read 10 ms


class Severity(StrEnum):
    """How soon a person must look."""

    P0 = "P0"  # now: traffic went back, or stands still where nobody chose
    P1 = "P1"  # today: something did not work, and traffic is safe
    INFO = "info"  # a step waits for a person as its plan says, or an emergency is over


class Alert(Value, frozen=True, kw_only=True):
    """One alert, as it lies in the store until it is sent."""

    id: str  # the same for every sending of it
    service: str
    severity: Severity
    title: str
    sentence: str  # the decision's own, where one is told of
    rollout: str = ""  # empty: none runs
    phase: str = ""  # of the rollout
    from_release: int = 0
    to_release: int = 0
    back_to: int = 0  # where it goes back, if it does
    by: Actor = Actor()  # who started the rollout, or steered it last
    reason: str = ""


_ASKED = {Cause.ASKED, Cause.ABORTED, Cause.OVERRIDE}
"""An operator's word; every other cause is told, also one that is not known yet."""


def decided(before: Rollout, after: Rollout, *, by_operator: bool) -> tuple[Alert, ...]:
    """Return the alert that a decision deserves: one, or none.

    Args:
        before: The rollout that the decision was made on.
        after: As it was written.
        by_operator: Whether a command decided, not the conductor.
    """
    told = None if by_operator else _told(before, after)
    if told is None:
        return ()
    severity, what = told
    return (raised(after, severity=severity, what=what, sentence=after.sentence),)


def raised(
    rollout: Rollout, *, severity: Severity, what: str, sentence: str, name: str = ""
) -> Alert:
    """Return an alert about a rollout as it is.

    Args:
        rollout: The rollout.
        severity: How soon a person must look.
        what: The title, after the service's name.
        sentence: What happened and why.
        name: Tells it from the decision's own alert, and from others of the same decision.
    """
    return Alert(
        id=f"{rollout.id}-{rollout.seq}{f'-{name}' if name else ''}",
        service=rollout.service,
        severity=severity,
        title=f"{rollout.service}: {what}",
        sentence=sentence,
        rollout=rollout.id,
        phase=rollout.phase,
        from_release=rollout.from_release,
        to_release=rollout.to_release,
        back_to=rollout.back_to,
        by=rollout.by,
        reason=rollout.reason,
    )


def drifted(rollout: Rollout, finding: "Finding | None") -> Alert | None:
    """Return the alert that a step's answers differ, without being so bad that traffic goes back.

    Its id is one for each step: it is told once, however long the step soaks.
    """
    from vctl_plans.drift import Level  # noqa: PLC0415  see above

    if finding is None or finding.level is not Level.P1:
        return None
    alert = raised(rollout, severity=Severity.P1, what="answers drift", sentence=finding.sentence)
    return msgspec.structs.replace(alert, id=f"{rollout.id}-step-{rollout.step + 1}-drift")


def _told(before: Rollout, after: Rollout) -> tuple[Severity, str] | None:
    """Return how soon, and what is to be told, of a decision that no operator made."""
    told: tuple[Severity, str] | None = None
    if after.phase is before.phase:
        return told
    match after.phase:
        case P.PAUSED if after.awaits_promote:
            told = Severity.INFO, "a step waits for vctl rollout promote"
        case P.PAUSED:
            told = (Severity.P0 if after.has_moved else Severity.P1), "rollout paused"
        case P.FAILED:
            told = Severity.P1, "rollout failed"
        case P.ROLLING_BACK if after.cause not in _ASKED and not before.is_going_back:
            told = Severity.P0, "rolling back"
        case P.ROLLED_BACK | P.CONVERGED if after.unconfirmed:
            told = Severity.P1, f"{_word(after.phase)}, with nodes unconfirmed"
        case P.ROLLED_BACK if after.cause not in _ASKED:
            told = Severity.INFO, "rolled back"
    return told


def _word(phase: P) -> str:
    return phase.replace("_", " ")


LATE_S = 30.0
"""How long after a route write every node should act on it (DESIGN section 7)."""


def late_route(
    service: str, revision: int, *, seen_s: float, missing: tuple[str, ...]
) -> Alert | None:
    """Return the alert that nodes do not act on a route; its id is one for each route revision.

    Args:
        service: The service.
        revision: The route revision.
        seen_s: Seconds since it was first seen, on the clock of who saw it.
        missing: The nodes that were there then, are there now, and do not report it.
    """
    if not revision or seen_s < LATE_S or not missing:
        return None
    return Alert(
        id=f"{service}-route-{revision}",
        service=service,
        severity=Severity.P1,
        title=f"{service}: not converged",
        sentence=f"{LATE_S:g} s after route {revision} was written, these nodes do not act on it:"
        f" {listed(missing)}",
    )


def document(alert: Alert, *, fleet: str) -> dict[str, object]:
    """Return the alert as it is told to programs: all fields, also those that say nothing."""
    fields = {name: getattr(alert, name) for name in alert.__struct_fields__ if name != "v"}
    content: dict[str, object] = msgspec.to_builtins(fields)
    return {"kind": "vctl.alert", "v": alert.v, "fleet": fleet, **content}
