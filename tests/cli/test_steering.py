"""`vctl rollout pause | promote | retry`: what each says and how it ends; how a step is shown."""

import json

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_plan, a_rollout, a_route, a_weighted_plan
from tests.cli.support import KEYS, Vctl, a_fleet, conductor, running
from vctl_cli.render.traffic import phase_text, traffic_text
from vctl_plans.codec import encode
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Cause, Entry, Progress, Promotion, Rollout
from vctl_plans.store.memory import MemoryStore
from vctl_plans.store.port import Txn

PLAN = a_weighted_plan(manual=(10,))
HALF = a_route(candidate=2, weight=50.0)


def at_step(phase: P = P.SOAKING, **more: object) -> Rollout:
    """Return a rollout at the second of three steps."""
    fields = {"strategy": "weighted", "step": 1, "steps": 3, "soak_s": 60.0, "plan": PLAN.digest}
    return running(phase, **(fields | more))


def a_soak(phase: P = P.SOAKING, **more: object) -> Vctl:
    """Return a fleet where half of the traffic is on release 2, 42 s into a soak of a minute."""
    rollout = at_step(phase, **more)
    vctl = a_fleet(releases=2, route=HALF, rollout=rollout)
    vctl.put(KEYS.plan(PLAN.digest), PLAN)
    vctl.put(KEYS.progress(SERVICE), Progress(rollout="r2", seq=rollout.seq, elapsed_s=42.0))
    return vctl


def rollout_of(vctl: Vctl) -> Rollout:
    """Return what is written."""
    rollout = vctl.service().rollout
    assert rollout is not None
    return rollout


# -- pause -----------------------------------------------------------------------------------------


def test_pause_stops_keeps_the_soak_and_is_0_as_asked():
    vctl = a_soak()
    said = vctl("rollout", "pause", "--reason", "look first")
    after = rollout_of(vctl)
    assert (0, "r2\n") == (said.code, said.out)
    assert "paused by an operator while soaking, 42s of 1m" in said.err
    assert (P.PAUSED, "soaking", 42.0) == (after.phase, after.resume_phase, after.soaked_s)
    assert ("look first", "ann") == (after.reason, after.by.user)
    assert vctl.service().route == HALF


def test_pause_does_not_count_the_time_of_another_phase():
    vctl = a_soak()
    vctl.put(KEYS.progress(SERVICE), Progress(rollout="r2", seq=99, elapsed_s=42.0))
    assert 0 == vctl("rollout", "pause").code
    assert 0.0 == rollout_of(vctl).soaked_s


def test_pause_of_what_is_paused_is_7_and_names_what_is_allowed():
    said = a_soak(P.PAUSED, resume_phase="soaking")("rollout", "pause")
    assert (7, "") == (said.code, said.out)
    assert "rollout pause is not allowed: rollout r2 of support is paused" in said.err
    assert "rollout resume" in said.err


def test_pause_as_json_is_the_rollout():
    said = a_soak()("rollout", "pause", "-o", "json")
    shown = json.loads(said.out)
    assert (0, "rollout", "paused") == (said.code, shown["kind"], shown["phase"])


# -- promote ---------------------------------------------------------------------------------------


def test_promote_ends_the_soak_and_follows_to_the_end():
    vctl = a_soak()
    vctl.conduct = conductor((P.CONVERGED, "converged (3/3) on release 2", {"confirmed": 3}),
                             begins=P.SOAKING)  # fmt: skip
    said = vctl("rollout", "promote")
    assert 0 == said.code
    assert "12:00:00  soaking: promoted by an operator: step 3 of 3 is next" in said.out
    assert "12:00:00  converged (3/3) on release 2" == said.out.splitlines()[-1]


def test_promote_of_a_manual_step_lets_it_go_on():
    vctl = a_soak(P.PAUSED, resume_phase="soaking", awaits_promote=True)
    said = vctl("rollout", "promote", "--no-watch")
    after = rollout_of(vctl)
    assert (0, "r2\n") == (said.code, said.out)
    assert (P.SOAKING, Promotion.STEP, False) == (after.phase, after.promoted, after.awaits_promote)
    assert vctl.service().route == HALF


def test_promote_in_full_says_where_it_goes():
    vctl = a_soak(step=0)
    said = vctl("rollout", "promote", "--full", "--no-watch")
    assert "promoted by an operator: step 3 of 3 is next" in said.err
    assert Promotion.FULL is rollout_of(vctl).promoted


def test_promote_pressed_twice_follows_the_first():
    vctl = a_soak()
    assert 0 == vctl("rollout", "promote", "--no-watch").code
    again = vctl("rollout", "promote", "--no-watch")
    assert (0, "r2\n") == (again.code, again.out)
    assert "already does this" in again.err
    assert 1 == rollout_of(vctl).seq


def test_promote_of_a_step_that_another_promoted_meanwhile_skips_no_other_soak():
    vctl = a_soak(step=0)

    class Beaten(MemoryStore):
        """A client that each time finds that another one was faster."""

        async def commit(self, txn: Txn) -> int:
            other = msgspec.structs.replace(at_step(), seq=3)
            await vctl.store.peer().put(KEYS.rollout(SERVICE), encode(other))
            return await super().commit(txn)

    class Raced(Vctl):
        def _open(self) -> MemoryStore:
            return Beaten(cluster=vctl.store._cluster)

    said = Raced(store=vctl.store)("rollout", "promote", "--no-watch")
    assert (7, "") == (said.code, said.out)
    assert "step 1 of rollout r2 is over already: it is at step 2 of 3" in said.err
    assert not rollout_of(vctl).promoted


def test_promote_of_what_does_not_soak_is_7():
    said = a_soak(P.SHIFTING)("rollout", "promote")
    assert (7, "") == (said.code, said.out)
    assert "rollout promote is not allowed: rollout r2 of support is shifting" in said.err


def test_manual_step_ends_the_tail_with_4_and_says_promote():
    waits = "soaked 1m: step 2 of 3 waits for vctl rollout promote"
    vctl = a_soak(P.PAUSED, resume_phase="soaking", awaits_promote=True, sentence=waits)
    vctl.put(
        KEYS.decision(SERVICE, "r2", 0),
        Entry(rollout="r2", seq=0, phase=P.PAUSED, sentence=waits),
    )
    said = vctl("rollout", "watch")
    assert f"earlier   paused: {waits}" in said.out.splitlines()
    assert 4 == said.code
    assert "vctl rollout promote -s support" in said.err
    assert "vctl rollout resume" not in said.err


def test_resume_of_a_manual_step_is_7_and_names_promote():
    said = a_soak(P.PAUSED, resume_phase="soaking", awaits_promote=True)("rollout", "resume")
    assert (7, "") == (said.code, said.out)
    assert "waits for vctl rollout promote" in said.err


# -- retry -----------------------------------------------------------------------------------------


def an_aborted() -> Vctl:
    """Return a fleet whose last rollout was aborted."""
    rollout = at_step(P.ROLLED_BACK, cause=Cause.ABORTED, back_to=1)
    vctl = a_fleet(releases=2, route=a_route(), rollout=rollout)
    vctl.put(KEYS.plan(PLAN.digest), PLAN)
    return vctl


def test_retry_starts_the_same_release_from_the_first_step():
    vctl = an_aborted()
    said = vctl("rollout", "retry", "--reason", "once more", "--no-watch")
    after = rollout_of(vctl)
    assert (0, f"{after.id}\n") == (said.code, said.out)
    assert after.id != "r2"
    assert (P.PREPARING, 2, 0, 3, "once more") == (
        after.phase, after.to_release, after.step, after.steps, after.reason,
    )  # fmt: skip
    assert "release 2 is prepared on 3 nodes" in said.err


def test_retry_is_followed_to_its_end():
    vctl = an_aborted()
    vctl.conduct = conductor((P.FAILED, "refused by a; no traffic moved", {}))
    said = vctl("rollout", "retry")
    assert 1 == said.code
    assert "refused by a" in said.out


def test_retry_of_what_was_revoked_is_7():
    rollout = a_rollout(P.ROLLED_BACK, cause=Cause.ASKED, back_to=1, plan=a_plan().digest)
    vctl = a_fleet(releases=2, route=a_route(revoked=(2,)), rollout=rollout)
    vctl.put(KEYS.plan(a_plan().digest), a_plan())
    said = vctl("rollout", "retry")
    assert (7, "") == (said.code, said.out)
    assert "release 2 of support is revoked" in said.err


def test_retry_without_any_rollout_is_7():
    said = a_fleet()("rollout", "retry")
    assert (7, "") == (said.code, said.out)
    assert "never had a rollout" in said.err


# -- what is shown ---------------------------------------------------------------------------------


def test_status_shows_the_step_the_share_and_what_is_left_of_the_soak():
    said = a_soak()("rollout", "status")
    lines = said.out.splitlines()
    assert (0, "") == (said.code, said.err)
    assert "phase     soaking, step 2/3, 18s left of 1m" in lines
    assert "traffic   [##########..........] 50 % on release 2" in lines


def test_status_of_the_fleet_shows_the_step():
    out = a_soak()("status").out
    assert "soaking 2/3" in out
    assert "50 % on 2" in out
    shown = json.loads(a_soak()("status", "-o", "json").out)["services"][0]
    assert (2, 3) == (shown["step"], shown["steps"])


@pytest.mark.parametrize(
    ("rollout", "text"),
    [
        (at_step(P.SHIFTING), "shifting, step 2/3"),
        (at_step(soaked_s=30.0), "soaking, step 2/3, 20s left of 1m"),
        (at_step(soaked_s=55.0), "soaking, step 2/3, 1m has passed"),
        (at_step(promoted=Promotion.STEP), "soaking, step 2/3, promoted"),
        (at_step(P.PAUSED, resume_phase="soaking"), "paused, step 2/3"),
        (
            at_step(P.PAUSED, resume_phase="soaking", awaits_promote=True),
            "paused, step 2/3, waits for vctl rollout promote",
        ),
        (at_step(P.ROLLING_BACK), "rolling_back"),
        (at_step(P.CONVERGED), "converged"),
        (a_rollout(P.PREPARING, steps=3), "preparing"),
        (running(P.SOAKING, soak_s=60.0), "soaking, 50s left of 1m"),
    ],
)
def test_phase_is_told_with_its_step_and_time(rollout: Rollout, text: str):
    assert text == phase_text(rollout, 10.0)


def test_traffic_is_told_as_a_bar():
    assert "[##..................] 10 % on release 2" == traffic_text(
        a_route(candidate=2, weight=10.0)
    )
    assert "[####################] 100 % on release 1" == traffic_text(a_route())


# -- start -----------------------------------------------------------------------------------------


def steps_of(*flags: str) -> object:
    """Return the steps of the plan that flags mean."""
    said = a_fleet()("rollout", "start", "--release", "1", *flags, "--print-plan", "-o", "json")
    assert (0, "") == (said.code, said.err)
    return said.out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--strategy", "weighted"), "strategy: weighted\nrelease: 1\n"),
        (
            ("--steps", "10,100"),
            "strategy: weighted\nrelease: 1\nsteps:\n- weight: 10\n- weight: 100\n",
        ),
        (
            ("--strategy", "weighted", "--steps", "0.5, 100", "--soak", "1m"),
            "steps:\n- weight: 0.5\n  soak: 1m\n- weight: 100\n  soak: 1m\n",
        ),
        (("--strategy", "weighted", "--soak", "1m"), "- weight: 25\n  soak: 1m\n"),
        (("--soak", "1m"), "strategy: full-switch\nrelease: 1\nsoak: 1m\n"),
    ],
)
def test_flags_say_the_steps(flags: tuple[str, ...], told: str):
    assert told in str(steps_of(*flags))


def test_weighted_rollout_is_written_with_its_steps():
    vctl = a_fleet(releases=2)
    flags = ("--release", "2", "--strategy", "weighted", "--steps", "10,50,100", "--soak", "5m")
    said = vctl("rollout", "start", *flags, "--no-watch")
    after = rollout_of(vctl)
    assert (0, f"{after.id}\n") == (said.code, said.out)
    assert ("weighted", 3, len(NODES)) == (after.strategy, after.steps, after.roster_size)
