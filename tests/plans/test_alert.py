"""Which decisions alert people, and what is told."""

import msgspec
import pytest

from tests.builders import SERVICE, a_rollout
from vctl_plans.alert import (
    LATE_S,
    Alert,
    Severity,
    decided,
    document,
    drifted,
    late_route,
    raised,
)
from vctl_plans.codec import decode, encode
from vctl_plans.drift import Finding, Level
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.release import Actor
from vctl_plans.rollout import Cause, advanced

P0, P1, INFO = Severity.P0, Severity.P1, Severity.INFO
GUARDRAIL = Cause.GUARDRAIL


@pytest.mark.parametrize(
    ("before", "phase", "changes", "expected"),
    [
        (P.PREPARING, P.SHIFTING, {"has_moved": True}, None),
        (P.SHIFTING, P.SHIFTING, {"step": 1}, None),
        (P.SHIFTING, P.SOAKING, {}, None),
        (P.SOAKING, P.SETTLING, {}, None),
        (P.SETTLING, P.CONVERGED, {"confirmed": 3}, None),
        (P.SETTLING, P.CONVERGED, {"unconfirmed": ("c",)}, P1),
        (P.PREPARING, P.PAUSED, {}, P1),
        (P.SHIFTING, P.PAUSED, {"has_moved": True}, P0),
        (P.SOAKING, P.PAUSED, {"has_moved": True, "awaits_promote": True}, INFO),
        (P.PREPARING, P.FAILED, {}, P1),
        (P.PREPARING, P.FAILED, {"cause": Cause.ASKED}, P1),
        (P.SOAKING, P.ROLLING_BACK, {"cause": GUARDRAIL}, P0),
        (P.ROLLING_BACK, P.ROLLING_BACK, {"cause": GUARDRAIL, "unload": (2,)}, None),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": GUARDRAIL}, INFO),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": GUARDRAIL, "unconfirmed": ("c",)}, P1),
        (P.PREPARING, P.ROLLING_BACK, {"cause": Cause.ASKED}, None),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": Cause.ASKED}, None),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": Cause.ABORTED}, None),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": Cause.OVERRIDE}, None),
        (P.ROLLING_BACK, P.ROLLED_BACK, {"cause": Cause.ABORTED, "unconfirmed": ("c",)}, P1),
        (P.ROLLING_BACK, P.PAUSED, {"cause": Cause.ASKED, "has_moved": True}, P0),
    ],
)
def test_decision_of_the_conductor_alerts_where_a_person_should_know(
    before, phase, changes, expected
):
    earlier = a_rollout(before)
    found = decided(earlier, advanced(earlier, phase, "why", **changes), by_operator=False)
    assert ([expected] if expected else []) == [alert.severity for alert in found]


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("phase", list(P))
def test_word_of_an_operator_alerts_nobody(phase, cause):
    earlier = a_rollout(P.SOAKING)
    after = advanced(earlier, phase, "asked", cause=cause, unconfirmed=("a",))
    assert () == decided(earlier, after, by_operator=True)


def test_cause_that_is_not_known_yet_alerts():
    """What sends a rollout back by itself is told, whatever it is called."""
    earlier = a_rollout(P.SHIFTING)
    after = advanced(earlier, P.ROLLING_BACK, "why", cause=Cause.NONE)
    assert [P0] == [alert.severity for alert in decided(earlier, after, by_operator=False)]


def test_rollback_that_is_gone_on_with_is_told_once():
    paused = a_rollout(P.PAUSED, resume_phase=P.ROLLING_BACK.value, cause=GUARDRAIL)
    after = advanced(paused, P.ROLLING_BACK, "resumed", resume_phase="")
    assert () == decided(paused, after, by_operator=False)


def test_alert_carries_the_decision():
    earlier = a_rollout(P.SOAKING, by=Actor(user="ann"), reason="INC-1", seq=4)
    after = advanced(earlier, P.ROLLING_BACK, "errors rose", cause=GUARDRAIL, back_to=1)
    assert (
        Alert(
            id="r2-5",
            service=SERVICE,
            severity=P0,
            title="support: rolling back",
            sentence="errors rose",
            rollout="r2",
            phase="rolling_back",
            from_release=1,
            to_release=2,
            back_to=1,
            by=Actor(user="ann"),
            reason="INC-1",
        ),
    ) == decided(earlier, after, by_operator=False)


def test_further_alert_of_a_decision_has_an_id_of_its_own():
    rollout = a_rollout(P.SOAKING, seq=5)
    drift = raised(rollout, severity=P1, what="answers drift", sentence="PSI 0.3", name="drift")
    assert ("r2-5-drift", "support: answers drift") == (drift.id, drift.title)


def test_alert_is_read_as_it_was_written():
    alert = raised(a_rollout(), severity=INFO, what="x", sentence="y")
    assert alert == decode(encode(alert), Alert)


def test_document_names_every_field_though_it_says_nothing():
    alert = Alert(id="a", service=SERVICE, severity=P1, title="t", sentence="s")
    found = document(alert, fleet="dev")
    assert {
        "kind": "vctl.alert",
        "v": 1,
        "fleet": "dev",
        "severity": "P1",
        "rollout": "",
    }.items() <= (found.items())
    assert {*msgspec.structs.asdict(alert), "kind", "fleet"} == found.keys()


@pytest.mark.parametrize(
    ("revision", "seen_s", "missing", "is_told"),
    [
        (9, LATE_S - 0.1, ("a",), False),
        (9, LATE_S, (), False),
        (0, LATE_S, ("a",), False),
        (9, LATE_S, ("a",), True),
    ],
)
def test_late_route_is_told_after_its_time(revision, seen_s, missing, is_told):
    found = late_route(SERVICE, revision, seen_s=seen_s, missing=missing)
    assert is_told == (found is not None)


def test_late_route_names_the_nodes_and_is_the_same_whoever_tells_it():
    nodes = tuple(f"n{n:02}" for n in range(30))
    found = late_route(SERVICE, 9, seen_s=40, missing=nodes)
    assert found is not None
    assert found == late_route(SERVICE, 9, seen_s=31, missing=nodes)
    assert (
        "30 s after route 9 was written, these nodes do not act on it:"
        f" {', '.join(nodes[:20])} and 10 more"
    ) == found.sentence


@pytest.mark.parametrize("level", Level)
def test_drift_is_told_by_itself_only_while_traffic_stays(level: Level):
    """P0 goes back, and the decision tells it."""
    rollout = a_rollout(P.SOAKING, step=1, steps=3)
    found = drifted(rollout, Finding(level, is_open=False, sentence="drift of finish: PSI 0.30"))
    told = found and (found.id, found.severity, found.sentence)
    wanted = (f"{rollout.id}-step-2-drift", Severity.P1, "drift of finish: PSI 0.30")
    assert (wanted if level is Level.P1 else None) == told
