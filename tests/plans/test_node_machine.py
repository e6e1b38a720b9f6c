"""One release on one node: what there is, and the one next thing to do."""

import itertools

import msgspec
import pytest

from vctl_plans.node_machine import MOVES, SPARED, Action, Facts, Failure, Verdict, assess
from vctl_plans.phase import NodePhase as N

WANTED = Facts(is_wanted=True)
LOADED = Facts(is_wanted=True, is_staged=True, is_resident=True, is_probed=True, is_offered=True)
LEFT = Facts(is_wanted=False, is_resident=True, is_probed=True, may_unload=True, in_flight=0)
REFUSED = Failure(N.FAILED, "bad root", is_permanent=True)
LATER = Failure(N.FAILED, "busy", is_permanent=False, retry_in_s=4.0)


@pytest.mark.parametrize(
    ("more", "phase", "action"),
    [
        ({}, N.FETCHING, Action.STAGE),
        ({"is_staged": True}, N.LOADING, Action.LOAD),
        ({"is_staged": True, "is_resident": True}, N.PROBING, Action.PROBE),
        ({"is_resident": True}, N.PROBING, Action.PROBE),
        ({"is_staged": True, "is_resident": True, "is_probed": True}, N.READY, Action.NONE),
    ],
)
def test_wanted_release_takes_the_next_step(
    more: dict[str, bool], phase: N, action: Action
) -> None:
    """Told by what is there, never by what was done before."""
    assert Verdict(phase, action) == assess(msgspec.structs.replace(WANTED, **more))


@pytest.mark.parametrize(
    ("more", "phase", "action"),
    [
        ({}, N.FETCHING, Action.STAGE),
        ({"is_staged": True}, N.STAGED, Action.NONE),
        ({"is_staged": True, "is_resident": True, "is_probed": True}, N.DRAINING, Action.NONE),
    ],
)
def test_release_of_another_base_is_staged_and_no_more(
    more: dict[str, bool], phase: N, action: Action
) -> None:
    """Nor does the gateway keep it once its base is to go."""
    facts = msgspec.structs.replace(WANTED, is_on_base=False, **more)

    assert Verdict(phase, action) == assess(facts)
    retained = msgspec.structs.replace(LEFT, may_unload=False, is_on_base=False)
    assert Verdict(N.DRAINING) == assess(retained)


def test_engine_that_was_restarted_is_loaded_again() -> None:
    """What was probed in the engine's earlier run does not count: it is not resident."""
    facts = msgspec.structs.replace(LOADED, is_resident=False)

    assert Action.LOAD is assess(facts).action


def test_final_failure_is_told_and_not_tried_again() -> None:
    """Within its rollout."""
    verdict = assess(msgspec.structs.replace(WANTED, failure=REFUSED))

    assert Verdict(N.FAILED, Action.NONE, "bad root", is_permanent=True) == verdict


def test_temporary_failure_waits() -> None:
    """Then it is tried again."""
    waiting = assess(msgspec.structs.replace(WANTED, failure=LATER))
    over = msgspec.structs.replace(LATER, retry_in_s=0.0)

    assert Verdict(N.FAILED, Action.NONE, "busy", wake_s=4.0) == waiting
    assert Action.STAGE is assess(msgspec.structs.replace(WANTED, failure=over)).action


@pytest.mark.parametrize(
    ("more", "action"),
    [
        ({}, Action.UNLOAD),
        ({"in_flight": 2}, Action.NONE),
        ({"in_flight": None}, Action.NONE),
        ({"is_offered": True}, Action.NONE),
        ({"in_flight": 2, "draining_s": 30.0}, Action.UNLOAD),
        ({"in_flight": None, "is_offered": True, "draining_s": 30.0}, Action.UNLOAD),
        ({"may_unload": False}, Action.NONE),
    ],
)
def test_unload_waits_for_requests_or_the_deadline(more: dict[str, object], action: Action) -> None:
    """The gateway has let go and nothing is in flight; unknown is not nothing."""
    assert action is assess(msgspec.structs.replace(LEFT, **more)).action


def test_drain_deadline_says_who_was_cut_off() -> None:
    """Or that nobody knows."""
    late = msgspec.structs.replace(LEFT, in_flight=2, draining_s=31.0)
    unknown = msgspec.structs.replace(late, in_flight=None)

    assert "drain deadline: 2 requests cut off" == assess(late).reason
    assert "drain deadline: an unknown number of requests cut off" == assess(unknown).reason


def test_unload_that_failed_waits_before_it_is_tried_again() -> None:
    """An engine that refuses is not asked in every cycle."""
    waiting = assess(msgspec.structs.replace(LEFT, failure=LATER))
    over = msgspec.structs.replace(LATER, retry_in_s=0.0)

    assert Verdict(N.DRAINING, Action.NONE, "busy", wake_s=4.0) == waiting
    assert Action.UNLOAD is assess(msgspec.structs.replace(LEFT, failure=over)).action


def test_retained_release_stays_ready() -> None:
    """Neither wanted by name nor listed: it is left alone."""
    assert Verdict(N.READY) == assess(msgspec.structs.replace(LEFT, may_unload=False))


def test_failed_probe_is_remembered_when_the_release_is_not_wanted() -> None:
    """People look for it after the rollout that it ended."""
    failed = Failure(N.QUARANTINED, "matched no module", is_permanent=True)
    kept = msgspec.structs.replace(LEFT, may_unload=False, is_probed=False, failure=failed)
    gone = msgspec.structs.replace(LEFT, is_resident=False, failure=failed)

    assert (N.QUARANTINED, "matched no module") == (assess(kept).phase, assess(kept).reason)
    assert (N.FAILED, "matched no module") == (assess(gone).phase, assess(gone).reason)


FAILS = Failure(N.QUARANTINED, "golden", is_permanent=True, is_of_probe=True, was_serving=True)


@pytest.mark.parametrize(
    ("spared_in_s", "more", "verdict"),
    [
        (None, {}, Verdict(N.QUARANTINED, Action.NONE, "golden", True, fails_probe=True)),
        (3.0, {}, Verdict(N.PROBING, Action.NONE, "golden", wake_s=3.0, fails_probe=True)),
        (0.0, {}, Verdict(N.READY, Action.NONE, f"{SPARED}: golden", fails_probe=True)),
        (0.0, {"is_resident": False}, Verdict(N.QUARANTINED, Action.NONE, "golden", True,
                                              fails_probe=True)),
        (0.0, {"is_on_base": False}, Verdict(N.QUARANTINED, Action.NONE, "golden", True,
                                             fails_probe=True)),
    ],
)  # fmt: skip
def test_what_serves_and_fails_its_probe_waits_for_the_word_and_serves_without_it(
    spared_in_s: float | None, more: dict[str, bool], verdict: Verdict
) -> None:
    """Only where it is loaded, on its own base; and it never passes for one that was probed."""
    facts = msgspec.structs.replace(
        LOADED, is_probed=False, failure=FAILS, spared_in_s=spared_in_s, **more
    )

    assert verdict == assess(facts)


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (None, Verdict(N.READY, Action.PROBE)),
        (LATER, Verdict(N.READY, wake_s=4.0)),
        (FAILS, Verdict(N.QUARANTINED, Action.NONE, "golden", True, fails_probe=True)),
    ],
)
def test_what_was_probed_serves_on_while_it_is_probed_again(
    failure: Failure | None, verdict: Verdict
) -> None:
    """Its caches were dropped, its weights are the same; only what is found speaks against it."""
    assert verdict == assess(msgspec.structs.replace(LOADED, is_due=True, failure=failure))


ALL_FACTS = [
    Facts(
        is_wanted=wanted,
        may_unload=unload and not wanted,
        is_staged=staged,
        is_resident=resident,
        is_on_base=on_base,
        is_probed=probed,
        is_due=due and probed,
        is_offered=offered,
        in_flight=flying,
        draining_s=drained,
        failure=failure,
    )
    for wanted, unload, staged, resident, on_base, probed, due, offered in itertools.product(
        (False, True), repeat=8
    )
    for flying in (None, 0, 3)
    for drained in (0.0, 99.0)
    for failure in (None, REFUSED, LATER)
]


def test_any_facts_have_a_verdict_that_is_safe() -> None:
    """No load of what is not verified, no unload of what is wanted, ready only once probed."""
    for facts in ALL_FACTS:
        verdict = assess(facts)
        assert verdict.action is not Action.LOAD or facts.is_staged
        assert verdict.action is not Action.PROBE or facts.is_resident
        assert facts.is_on_base or verdict.action not in {Action.LOAD, Action.PROBE}
        assert facts.is_on_base or verdict.phase is not N.READY
        assert verdict.action is not Action.UNLOAD or (facts.may_unload and not facts.is_wanted)
        assert verdict.phase is not N.READY or (facts.is_resident and facts.is_probed)


def test_doing_what_is_next_makes_a_release_ready_and_unloads_it() -> None:
    """From any facts without a failure, in at most three steps; each move is in the table."""
    done = {
        Action.STAGE: {"is_staged": True},
        Action.LOAD: {"is_resident": True, "is_probed": False, "is_due": False},
        Action.PROBE: {"is_probed": True, "is_due": False},
        Action.UNLOAD: {"is_resident": False, "is_probed": False},
    }
    for start in ALL_FACTS:
        if start.failure or not start.is_on_base or (start.is_probed and not start.is_resident):
            continue
        facts, seen = start, [assess(start).phase]
        while (action := assess(facts).action) is not Action.NONE:
            facts = msgspec.structs.replace(facts, **done[action])
            seen.append(assess(facts).phase)
        assert len(seen) <= 4
        steps = [(a, b) for a, b in itertools.pairwise(seen) if a is not b]
        assert all(b in MOVES[a] or (a, b) == (N.FETCHING, N.LOADING) for a, b in steps)
        if start.is_wanted:
            assert N.READY is seen[-1]


def test_moves_name_every_phase() -> None:
    """The diagram shows all of them, and each can be reached."""
    assert set(N) == set(MOVES)
    assert set(N) - {N.ABSENT} == set().union(*MOVES.values())
