"""Guardrails in a rollout: what is breached goes back, what cannot be told waits, and is said."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.builders import a_plan, a_weighted_plan, an_adapter_wish
from tests.plans.story import FAILED, GROUPS, PASSED, UNSURE, Story, a_group_plan
from vctl_plans import invariants
from vctl_plans.drift import Finding, Level
from vctl_plans.errors import TransitionError
from vctl_plans.events import TakenOver
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import DriftLimits, PlanStep, Watch
from vctl_plans.rollout import Cause
from vctl_plans.watching import Watching

PREPARED = "preparing: release 2 is prepared on 3 nodes"
FIRST = (
    "shifting: release 2 is ready on 3 of 3 nodes: step 1 of 2, 50 % of traffic moves to release 2"
)
SOAK_50 = "soaking: 3 of 3 nodes route 50 % to release 2: soaking 1m"
PASSES = "soaked 1m, guardrails passed: error ratio 1.0"
SECOND = f"shifting: {PASSES}: step 2 of 2, 100 % of traffic moves to release 2"
SOAK_100 = "soaking: 3 of 3 nodes route 100 % to release 2: soaking 1m"
SETTLED = f"settling: {PASSES}: release 2 is stable"
CONVERGED = "converged: converged (3/3) on release 2"
BREACHED = "guardrail breached: error ratio 9.0"
BACK = [
    f"rolling_back: {BREACHED}: traffic returns to release 1; release 2 is revoked",
    "rolling_back: 3 of 3 nodes report the route: release 2 may be unloaded",
    "rolled_back: rolled back (3/3) on release 1",
]
LIMIT = "3 requests are fewer than 200"
EXTENDED = f"soaking: the soak is extended for 1m at most: inconclusive: {LIMIT}"
OVER = f"paused: inconclusive: {LIMIT}, and the time to extend is over"


def begun(story: Story, *, manual: tuple[float, ...] = (), **watch: Any) -> None:
    """Start from release 1 to 2 by 50 and 100 under guardrails, and come to the first soak."""
    plan = a_weighted_plan(50, 100, manual=manual, watch=Watch(**watch))
    story.serve(1).start(an_adapter_wish(2), plan=plan)
    assert story.run() is P.SOAKING


def soaked(story: Story) -> None:
    """Let the step's soak pass, and come to the next one or to the end."""
    story.observe(60)
    story.run()


def passes(story: Story) -> None:
    """Have all windows be fine."""
    begun(story)
    story.judge(PASSED)
    soaked(story)
    soaked(story)


def breach_at_fifty(story: Story) -> None:
    """Have the first window be bad."""
    begun(story)
    story.judge(FAILED)
    story.run()


def breach_at_full(story: Story) -> None:
    """Have it go wrong once it has all traffic."""
    begun(story)
    story.judge(PASSED)
    soaked(story)
    story.judge(PASSED, FAILED)
    story.run()


def breach_that_pauses(story: Story) -> None:
    """Have a person look at it, who goes on in spite of it."""
    begun(story, on_breach="pause")
    story.judge(FAILED)
    story.run()
    story.resume()
    story.run()
    story.promote()
    story.run()


def too_few_until_the_deadline(story: Story) -> None:
    """Extend as long as preparing may take; then wait, and extend again for whoever resumes."""
    begun(story)
    story.judge(UNSURE)
    story.observe(60)
    assert story.observe(59.9).wake_s == 60
    story.observe(60)
    story.resume()
    story.observe()
    story.judge(UNSURE, PASSED)
    story.run()


def too_few_that_go_on(story: Story) -> None:
    """Go on for want of evidence, as the plan says, and say so."""
    begun(story, on_inconclusive="proceed")
    story.judge(UNSURE)
    soaked(story)


def too_few_that_pause(story: Story) -> None:
    """Wait for a person at once."""
    begun(story, on_inconclusive="pause")
    story.judge(UNSURE)
    soaked(story)
    story.promote()
    story.run()


def nothing_was_seen(story: Story) -> None:
    """Have a conductor without any look at the traffic: that passes nothing."""
    begun(story)
    story.observe(60)


def promoted_in_spite(story: Story) -> None:
    """Have an operator promote what the next look would send back."""
    begun(story)
    story.judge(FAILED)
    story.promote()
    story.observe()
    story.judge(PASSED)
    story.run()
    soaked(story)


def waiting_and_breached(story: Story) -> None:
    """Have it go wrong while it waits for its promotion, over a week-end."""
    begun(story, manual=(50,))
    story.judge(PASSED)
    soaked(story)
    assert story.observe(1000).wake_s == 1030
    story.judge(PASSED, FAILED)
    story.run()


def paused_and_breached(story: Story) -> None:
    """Have an operator stop it to look; it goes wrong while they do."""
    begun(story)
    story.pause(20)
    assert story.observe(1000).wake_s == 1030
    story.judge(FAILED)
    story.run()


def waiting_and_breached_to_pause(story: Story) -> None:
    """The same where a person decides: whoever is to promote is told, once."""
    begun(story, manual=(50,), on_breach="pause")
    story.judge(PASSED)
    soaked(story)
    story.judge(PASSED, FAILED)
    story.run()
    story.promote()
    story.run()


def two_in_a_row(story: Story) -> None:
    """Have one bad window be forgiven, and the second in a row not; few requests break no row."""
    begun(story, consecutive=2)
    story.judge(FAILED)
    story.run()
    story.judge(FAILED, UNSURE)
    story.run()
    story.judge(FAILED, UNSURE, FAILED)
    story.run()


def one_of_two_at_the_end(story: Story) -> None:
    """Have the soak end after one bad window of two: it is extended until it is clear."""
    begun(story, consecutive=2)
    story.judge(PASSED, FAILED)
    story.observe(60)
    story.judge(PASSED, FAILED, PASSED)
    story.observe(10)


def drift(story: Story) -> None:
    """Have answers change beyond doubt."""
    begun(story, drift=DriftLimits())
    found = Finding(Level.P0, is_open=False, sentence="drift of finish: PSI 0.90")
    story.watching = Watching(verdicts=(PASSED,), finding=found)
    story.run()


def drift_that_alerts(story: Story) -> None:
    """Have answers change somewhat: that moves nothing."""
    begun(story, drift=DriftLimits())
    found = Finding(Level.P1, is_open=False, sentence="drift of finish: PSI 0.40")
    story.watching = Watching(verdicts=(PASSED,), finding=found)
    story.observe(60)


def drift_that_pauses(story: Story) -> None:
    """The same where it was asked for."""
    begun(story, drift=DriftLimits(pause=True))
    found = Finding(Level.P1, is_open=False, sentence="drift of finish: PSI 0.40")
    story.watching = Watching(verdicts=(PASSED,), finding=found)
    story.observe(10)


def severe_drift_that_pauses(story: Story) -> None:
    """Where a breach pauses, drift does."""
    begun(story, drift=DriftLimits(), on_breach="pause")
    found = Finding(Level.P0, is_open=False, sentence="drift of finish: PSI 0.90")
    story.watching = Watching(verdicts=(PASSED,), finding=found)
    story.observe(10)


def first_release(story: Story) -> None:
    """Bring the first release: there is nothing to compare it with, nor to go back to."""
    story.start(an_adapter_wish(1), plan=a_plan(soak_s=60, watch=Watch()))
    story.run()
    story.judge(FAILED)
    soaked(story)


def what_serves_already(story: Story) -> None:
    """Confirm what serves: going back to it would be no way back."""
    story.serve(1).start(an_adapter_wish(1), plan=a_plan(soak_s=60, watch=Watch()))
    story.run()
    story.judge(FAILED)
    story.run()


SECOND_PROMOTED = "shifting: promoted: step 2 of 2, 100 % of traffic moves to release 2"
NEXT = "soaking: promoted by an operator: step 2 of 2 is next"
DRIFTED = "drift of finish: PSI"

TOLD: dict[Callable[[Story], None], list[str]] = {
    passes: [PREPARED, FIRST, SOAK_50, SECOND, SOAK_100, SETTLED, CONVERGED],
    breach_at_fifty: [PREPARED, FIRST, SOAK_50, *BACK],
    breach_at_full: [PREPARED, FIRST, SOAK_50, SECOND, SOAK_100, *BACK],
    breach_that_pauses: [
        PREPARED, FIRST, SOAK_50,
        f"paused: {BREACHED}",
        "soaking: resumed: soaking, 1m left",
        f"paused: {BREACHED}",
        NEXT, SECOND_PROMOTED, SOAK_100,
        f"paused: {BREACHED}",
    ],
    too_few_until_the_deadline: [
        PREPARED, FIRST, SOAK_50, EXTENDED, OVER,
        "soaking: resumed: soaking, 0s left",
        EXTENDED, SECOND, SOAK_100,
    ],
    too_few_that_go_on: [
        PREPARED, FIRST, SOAK_50,
        (
            f"shifting: soaked 1m, inconclusive: {LIMIT}: step 2 of 2, 100 % of traffic moves to"
            " release 2"
        ),
        SOAK_100,
    ],
    too_few_that_pause: [
        PREPARED, FIRST, SOAK_50,
        f"paused: inconclusive: {LIMIT}",
        NEXT, SECOND_PROMOTED, SOAK_100,
    ],
    nothing_was_seen: [
        PREPARED, FIRST, SOAK_50,
        (
            "soaking: the soak is extended for 1m at most: inconclusive: nothing"
            " was judged"
        ),
    ],
    promoted_in_spite: [
        PREPARED, FIRST, SOAK_50, NEXT, SECOND_PROMOTED, SOAK_100, SETTLED, CONVERGED,
    ],
    waiting_and_breached: [
        PREPARED, FIRST, SOAK_50,
        f"paused: {PASSES}: step 1 of 2 waits for vctl rollout promote",
        *BACK,
    ],
    paused_and_breached: [
        PREPARED, FIRST, SOAK_50,
        "paused: paused by an operator while soaking, 20s of 1m",
        *BACK,
    ],
    waiting_and_breached_to_pause: [
        PREPARED, FIRST, SOAK_50,
        f"paused: {PASSES}: step 1 of 2 waits for vctl rollout promote",
        f"paused: {BREACHED}",
        NEXT, SECOND_PROMOTED, SOAK_100,
        f"paused: {BREACHED}",
    ],
    two_in_a_row: [
        PREPARED, FIRST, SOAK_50,
        BACK[0].replace("breached", "breached (2 in a row)"), *BACK[1:],
    ],
    one_of_two_at_the_end: [
        PREPARED, FIRST, SOAK_50,
        (
            "soaking: the soak is extended for 1m at most: breach 1 of 2: error"
            " ratio 9.0"
        ),
        SECOND,
    ],
    drift: [
        PREPARED, FIRST, SOAK_50,
        BACK[0].replace(BREACHED, f"P0: {DRIFTED} 0.90"), *BACK[1:],
    ],
    drift_that_alerts: [PREPARED, FIRST, SOAK_50, SECOND],
    drift_that_pauses: [PREPARED, FIRST, SOAK_50, f"paused: P1: {DRIFTED} 0.40"],
    severe_drift_that_pauses: [PREPARED, FIRST, SOAK_50, f"paused: P0: {DRIFTED} 0.90"],
    first_release: [
        "preparing: release 1 is prepared on 3 nodes",
        "shifting: release 1 is ready on 3 of 3 nodes: traffic moves to it",
        "soaking: 3 of 3 nodes route to release 1: soaking 1m",
        "settling: soaked 1m: release 1 is stable",
        "converged: converged (3/3) on release 1",
    ],
    what_serves_already: [
        "preparing: release 1 is prepared on 3 nodes",
        "shifting: release 1 is ready on 3 of 3 nodes: traffic moves to it",
        "soaking: 3 of 3 nodes route to release 1: soaking 1m",
        f"paused: {BREACHED}; there is no release to go back to",
    ],
}  # fmt: skip

scenarios = pytest.mark.parametrize("scenario", TOLD, ids=lambda s: s.__name__)


@scenarios
def test_scenario_is_told_in_sentences(scenario: Callable[[Story], None]) -> None:
    """The history of each says what was decided and why, and has no hole."""
    story = Story()
    scenario(story)

    assert TOLD[scenario] == story.said
    assert [] == invariants.history(story.history, rollout=story.rollout)


@scenarios
@pytest.mark.parametrize("decision", range(12))
def test_scenario_ends_alike_when_its_conductor_dies(
    scenario: Callable[[Story], None], decision: int
) -> None:
    """Cut before and after the decision's write, the next conductor comes to the same end."""
    whole, cut = Story(), Story(dies_at=decision)
    scenario(whole)
    scenario(cut)

    assert whole.said == cut.said
    assert (whole.route, whole.rollout) == (cut.route, cut.rollout)


def at(**watch: Any) -> Story:
    """Return a rollout that soaks at half of the traffic under guardrails."""
    story = Story()
    begun(story, **watch)
    return story


@pytest.mark.parametrize("now_s", [0.0, 59.0, 61.0])
def test_breach_goes_back_at_any_time_of_a_soak(now_s: float) -> None:
    """And revokes what it leaves; a guardrail is named as the cause."""
    story = at()
    story.judge(PASSED, FAILED)
    story.observe(now_s)

    assert (P.ROLLING_BACK, (2,), Cause.GUARDRAIL) == (
        story.phase,
        story.route.revoked,
        story.rollout.cause,
    )


def test_breach_of_groups_pauses_where_the_plan_says_so() -> None:
    """They keep what they were brought until a person decides."""
    story = Story().serve(1)
    plan = a_group_plan(watch=Watch(on_breach="pause"))
    story.start(an_adapter_wish(2), plan=plan, groups=GROUPS)
    story.run()
    story.judge(FAILED)
    story.run()

    assert (P.PAUSED, 2) == (story.phase, story.theirs())


def test_deadline_of_the_extension_is_not_begun_anew_by_a_takeover() -> None:
    """A minute is a minute."""
    story = at()
    story.judge(UNSURE)
    story.observe(60)
    story.observe(30, event=TakenOver(1))

    assert 60 == story.observe(59.9).wake_s
    assert story.observe(60).rollout.phase is P.PAUSED


def test_window_is_looked_at_when_it_may_be_whole() -> None:
    """At once where it is late, but not without a pause; at the soak's end in any case."""
    story = at(interval_s=30.0)
    story.watching = Watching(verdicts=(PASSED,), since_s=12.0)

    assert 42 == story.observe(20).wake_s
    assert 50.25 == story.observe(50).wake_s
    assert 60 == story.observe(59.9).wake_s


def test_soak_that_waits_for_nodes_is_watched_on() -> None:
    """It has passed, and no more traffic moves; what went wrong since goes back."""
    story = at(interval_s=30.0)
    story.drop("b", 2)
    story.watching = Watching(verdicts=(PASSED,), since_s=50.0)

    assert 80 == story.observe(60).wake_s
    story.judge(PASSED, FAILED)
    assert story.observe(80).rollout.phase is P.ROLLING_BACK


def test_plan_without_guardrails_watches_nothing() -> None:
    """Whatever was seen."""
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=a_weighted_plan(50, 100))
    story.run()
    story.judge(FAILED)

    assert 60 == story.observe(1).wake_s
    assert not story.rollout.watches


def test_manual_step_without_a_soak_is_judged_before_it_waits() -> None:
    """Nothing waits to be promoted that nobody looked at."""
    plan = a_plan(steps=(PlanStep(manual=True),), watch=Watch())
    story = Story().serve(1)
    story.start(an_adapter_wish(2), plan=plan)
    story.run()
    assert (P.SOAKING, False) == (story.phase, story.rollout.awaits_promote)
    story.judge(PASSED)
    story.observe(1)

    assert (P.PAUSED, True) == (story.phase, story.rollout.awaits_promote)


def test_drift_while_it_waits_is_left_to_whoever_promotes() -> None:
    """Only what goes back or pauses by a breach says more; a breach afterwards still goes back."""
    story = at(drift=DriftLimits(pause=True))
    story.judge(PASSED)
    story.pause()
    promotable = msgspec.structs.replace(story.rollout, awaits_promote=True)
    story.service = msgspec.structs.replace(story.service, rollout=promotable)
    found = Finding(Level.P1, is_open=False, sentence="drift of finish: PSI 0.40")
    story.watching = Watching(verdicts=(PASSED,), finding=found)
    assert not story.observe(1).sentence
    story.judge(FAILED)

    assert story.observe(2).rollout.phase is P.ROLLING_BACK


def test_guardrail_that_was_not_watching_is_told() -> None:
    """By the second opinion."""
    story = at()
    before = invariants.Written(rollout=story.rollout, route=story.route, route_revision=9)
    story.judge(FAILED)
    story.observe()
    back = invariants.Written(rollout=story.rollout, route=story.route, route_revision=10)
    blind = msgspec.structs.replace(story.rollout, watches=False)
    told = "I10: a guardrail sent back what it did not watch"

    assert told not in invariants.check(before, back)
    assert told in invariants.check(before, msgspec.structs.replace(back, rollout=blind))


def test_what_is_refused_while_it_waits_names_no_resume() -> None:
    """Which would be refused as well: only a promotion lets a manual step go on."""
    story = Story()
    begun(story, manual=(50,))
    story.judge(PASSED)
    soaked(story)
    with pytest.raises(TransitionError) as refused:
        story.pause()

    assert "rollout resume" not in refused.value.hint
    assert "rollout promote" in refused.value.hint
