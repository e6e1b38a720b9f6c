"""`vctl events`: decisions of all services, in order, filtered by age."""

import json

from tests.cli.support import KEYS, Vctl
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.release import Actor
from vctl_plans.rollout import Entry

ANN = Actor(user="ann", host="laptop")


def _fleet() -> Vctl:
    vctl = Vctl()
    told = (
        ("support", "r1", 0, "2026-01-02T10:00:00Z", "started"),
        ("billing", "r9", 0, "2026-01-02T11:30:00Z", "started too"),
        ("support", "r1", 1, "2026-01-02T11:59:00Z", "converged"),
        ("support", "r0", 0, "", "before times were kept"),
    )
    for service, rollout, seq, at, sentence in told:
        entry = Entry(
            rollout=rollout,
            seq=seq,
            phase=P.SOAKING,
            sentence=sentence,
            by=ANN,
            at=at,
            reason="why",
        )
        vctl.put(f"{KEYS.rollout_history(service, rollout)}{seq:06d}", entry)
    vctl.put(
        KEYS.archive("support", "r1"), Entry(rollout="r1", seq=9, phase=P.SOAKING, sentence="x")
    )
    return vctl


def _said(vctl: Vctl, *more: str) -> list[str]:
    said = vctl("events", "-o", "json", *more)
    assert (0, "") == (said.code, said.err)
    return [event["sentence"] for event in json.loads(said.out)["events"]]


def test_all_decisions_of_all_services_in_order():
    all_of_them = ["started", "started too", "converged", "before times were kept"]
    assert all_of_them == _said(_fleet())


def test_only_what_is_not_older():
    assert ["started too", "converged"] == _said(_fleet(), "--since", "1h")
    assert ["converged"] == _said(_fleet(), "--since", "5m")


def test_only_one_service():
    assert ["started too"] == _said(_fleet(), "--service", "billing")


def test_table_says_who_and_why():
    said = _fleet()("events")
    assert "ann@laptop" in said.out
    assert "converged  [why]" in said.out


def test_fleet_without_history_says_so():
    assert "nothing was decided\n" == Vctl()("events").out


def test_age_that_is_none_is_refused():
    said = _fleet()("events", "--since", "soon")
    assert 2 == said.code
    assert "--since" in said.err
