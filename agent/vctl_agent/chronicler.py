"""What one conductor saw of each rollout's present phase, for the history (`plans.chronicle`).

It is kept in memory only: after a take-over a node that had arrived before counts from the first
look, which is late and never early.
"""

from collections.abc import Mapping

import msgspec

from vctl_plans import chronicle
from vctl_plans.decision import Decision, State
from vctl_plans.node import NodeReport
from vctl_plans.seen import Seen, Window


class _Phase(msgspec.Struct):
    """The present phase of one rollout."""

    rollout: str
    seq: int
    arrivals: dict[str, float]  # node -> the phase's age when it was first seen to be done


class Chronicler:
    """Looks for one conductor."""

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = {}  # by service

    def look(self, state: State, reports: Mapping[str, NodeReport], now_s: float) -> None:
        """Note who has done by now what the phase waits for; *now_s* is its age."""
        rollout = state.rollout
        phase = self._phases.get(rollout.service)
        if phase is None or (phase.rollout, phase.seq) != (rollout.id, rollout.seq):
            phase = _Phase(rollout.id, rollout.seq, {})
            self._phases[rollout.service] = phase
        if len(phase.arrivals) == len(state.roster):
            return
        for node in chronicle.arrived(state, reports):
            phase.arrivals.setdefault(node, now_s)

    def seen(
        self,
        decision: Decision,
        reports: Mapping[str, NodeReport],
        now_s: float,
        *,
        windows: tuple[Window, ...],
    ) -> Seen:
        """Return what goes into the history with *decision*, which ends a phase of age *now_s*.

        It is kept: a decision whose write loses a race is taken once more.
        """
        service = decision.rollout.service
        phase = self._phases.get(service)
        return chronicle.seen(
            decision.state.route,
            took_s=now_s,
            holding=chronicle.holders(service, reports.values()),
            arrivals=phase.arrivals if phase else {},
            windows=windows,
        )
