"""Whatever operators, nodes and verdicts do in whatever order: each write holds, and it can end."""

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.builders import a_base_wish, a_plan, a_weighted_plan, an_adapter_wish
from tests.plans.story import FAILED, GROUPS, PASSED, STAFF, UNSURE, Story, a_group_plan
from vctl_plans import invariants
from vctl_plans.base import base_root, base_wanted
from vctl_plans.drift import Finding, Level
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.events import TakenOver
from vctl_plans.groups import Groups
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import DriftLimits, PlanStep, Watch
from vctl_plans.route import Consistency
from vctl_plans.units import Quota
from vctl_plans.watching import Watching

FLEET = ("a", "b", "c", "d")
LONG_S = 10_000.0
"""Longer than any deadline."""

watches = st.none() | st.builds(
    Watch,
    consecutive=st.integers(1, 2),
    drift=st.none() | st.builds(DriftLimits, pause=st.booleans()),
    on_breach=st.sampled_from(["rollback", "pause"]),
    on_inconclusive=st.sampled_from(["extend", "pause", "proceed"]),
)
more = st.fixed_dictionaries(
    {
        "consistency": st.sampled_from(Consistency),
        "watch": watches,
        "ready": st.sampled_from([Quota(percent=100.0), Quota(percent=50.0), Quota(count=3)]),
        "max_failed": st.integers(0, 2),
        "max_absent": st.sampled_from([Quota(percent=10.0), Quota(percent=50.0), Quota(count=4)]),
        "retain": st.integers(0, 2),
    }
)
weights = st.sampled_from([(50.0, 100.0), (10.0, 50.0, 100.0), (100.0,)])
manual = st.sampled_from([(), (50.0,), (10.0, 100.0)])
soaks = st.sampled_from([0.0, 60.0])
numbers = st.integers(1, 5)
nodes = st.sampled_from(FLEET)
verdicts = st.lists(st.sampled_from([PASSED, FAILED, UNSURE]), max_size=3).map(tuple)
findings = st.none() | st.builds(
    Finding, st.sampled_from(Level), is_open=st.booleans(), sentence=st.just("drift: PSI 0.7")
)
times = st.sampled_from([0.0, 5.0, 20.0, 40.0, 60.0, 120.0])


def refuse(story: Story, node: str) -> None:
    """Refuse what is new before it is loaded."""
    if story.refuses.pop(node, None) is None:
        story.refuses[node] = "bad root"


def find_fault(story: Story, node: str) -> None:
    """Find fault with what is new after it is loaded."""
    if story.quarantined.pop(node, None) is None:
        story.quarantined[node] = "failed probe"


def come_or_go(story: Story, node: str) -> None:
    """Vanish, or come back."""
    if node in story.nodes:
        story.vanish(node)
    else:
        story.join(node)


def restart_engine(story: Story, node: str) -> None:
    """Hold nothing."""
    for number in range(1, 9):
        story.drop(node, number)


TROUBLES: dict[str, Callable[[Story, str], None]] = {
    "deaf": lambda story, node: story.deaf.symmetric_difference_update({node}),
    "slow": lambda story, node: story.slow.symmetric_difference_update({node}),
    "clinging": lambda story, node: story.clinging.symmetric_difference_update({node}),
    "refuse": refuse,
    "find_fault": find_fault,
    "come_or_go": come_or_go,
    "restart_engine": restart_engine,
}


class Machine(RuleBasedStateMachine):
    """One service on four nodes. `Story` asks for the second opinion at every write."""

    kinds: ClassVar[list[str]] = ["full-switch", "weighted", "user-group"]

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.story.nodes = list(FLEET)

    # -- operators ---------------------------------------------------------------------------------

    @rule(
        number=numbers,
        kind=st.sampled_from(kinds),
        groups=st.sampled_from([GROUPS, STAFF]),
        weights=weights,
        manual=manual,
        soak_s=soaks,
        more=more,
        supersede=st.booleans(),
    )
    def start(
        self,
        number: int,
        kind: str,
        groups: Groups,
        weights: tuple[float, ...],
        manual: tuple[float, ...],
        soak_s: float,
        more: dict[str, Any],
        supersede: bool,
    ) -> None:
        """Start one of the three that bring a release."""
        if kind == "weighted":
            plan = a_weighted_plan(*weights, soak_s=soak_s, manual=manual, **more)
        elif kind == "user-group":
            plan = a_group_plan(groups, soak_s=soak_s, **more)
        else:
            plan = a_plan(steps=(PlanStep(soak_s=soak_s, manual=bool(manual)),), **more)
        known = self.story.service.releases
        wish = number if number in known else an_adapter_wish(number)
        its = groups if kind == "user-group" else None
        with contextlib.suppress(TransitionError, PlanError):
            self.story.start(wish, plan=plan, supersede=supersede, groups=its)

    @rule(to=st.integers(0, 3))
    def planned_rollback(self, to: int) -> None:
        """Go back by a plan."""
        plan = a_plan(strategy="rollback", to=to, steps=(PlanStep(),))
        with contextlib.suppress(TransitionError, PlanError):
            self.story.start(to, plan=plan)

    @rule(to=st.sampled_from([0, 0, 0, 1, 2, 3]))
    def rollback_now(self, to: int) -> None:
        """`rollback --now`."""
        with contextlib.suppress(TransitionError, PlanError):
            self.story.back(to)

    @rule(groups=st.sampled_from([GROUPS, STAFF]))
    def end_override(self, groups: Groups) -> None:
        """`route override rm`."""
        with contextlib.suppress(TransitionError, PlanError):
            self.story.end_override(groups)

    @rule(word=st.sampled_from(["abort", "pause", "resume", "promote", "promote_in_full", "retry"]))
    def steer(self, word: str) -> None:
        """Say one word to what runs."""
        if not self.story.service.rollout:
            return
        with contextlib.suppress(TransitionError, PlanError):
            if word == "promote_in_full":
                self.story.promote(is_full=True)
            else:
                getattr(self.story, word)()

    # -- nodes -------------------------------------------------------------------------------------

    @rule(node=nodes, what=st.sampled_from(list(TROUBLES)))
    def trouble(self, node: str, what: str) -> None:
        """Have a node begin to fail in some way, or do so no more."""
        if self.story.service.rollout:
            TROUBLES[what](self.story, node)

    @rule(verdicts=verdicts, finding=findings)
    def judge(self, verdicts: Any, finding: Finding | None) -> None:
        """Have guardrails find something."""
        self.story.watching = Watching(verdicts=verdicts, finding=finding)

    # -- the conductor -----------------------------------------------------------------------------

    @rule(now_s=times, takeovers=st.sampled_from([1] * 9 + [10]))
    def take_over(self, now_s: float, takeovers: int) -> None:
        """Have another conductor go on."""
        if self.story.service.rollout:
            self.story.observe(now_s, event=TakenOver(takeovers))

    @rule(now_s=times)
    def look(self, now_s: float) -> None:
        """Have the conductor look before nodes do anything."""
        if self.story.service.rollout:
            self.story.observe(now_s)

    @rule(times=st.lists(times, max_size=4))
    def go_on(self, times: list[float]) -> None:
        """Let things take their course for a while."""
        for now_s in times:
            if self.story.service.rollout:
                self.story.obey()
                self.story.observe(now_s)

    @rule()
    def go_on_to_its_end(self) -> None:
        """Let things take their course without any time passing."""
        if self.story.service.rollout:
            self.story.run()

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def history_has_no_hole(self) -> None:
        """Every decision can be read."""
        if self.story.service.rollout:
            assert [] == invariants.history(self.story.history, rollout=self.story.rollout)

    @invariant()
    def nobody_waits_for_what_has_ended(self) -> None:
        """Requests are held by a rollout that shifts, and by no other."""
        assert self.story.route.hold is None or self.story.phase is P.SHIFTING

    @invariant()
    def nothing_is_served_that_may_be_unloaded(self) -> None:
        """Nor kept for a way back."""
        if self.story.service.rollout:
            route = self.story.route
            assert not set(self.story.rollout.unload) & (route.serving | set(route.instant))

    def teardown(self) -> None:
        """Heal everything, say yes to everything: it ends."""
        story = self.story
        if not story.service.rollout:
            return
        for ailing in (story.deaf, story.slow, story.clinging, story.refuses, story.quarantined):
            ailing.clear()
        for node in set(FLEET) - set(story.nodes):
            story.join(node)
        story.watching = Watching(verdicts=(PASSED,))
        said = len(story.said)
        for _ in range(40):
            if story.phase.is_terminal:
                break
            if story.phase is P.PAUSED and story.rollout.awaits_promote:
                story.promote()
            elif story.phase is P.PAUSED:
                story.resume()
            story.obey()
            if not story.observe().sentence:
                story.observe(LONG_S)
        assert story.phase.is_terminal, "\n".join(story.said)
        is_told = said == len(story.said) or not story.state().roster
        assert is_told or not story.rollout.unconfirmed, "\n".join(story.said)
        assert story.route.hold is None


class Serving(Machine):
    """The same where something serves already, and groups have what is theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.story.serve(1, 2)
        self.story.give(3)


class Moving(Machine):
    """Base weights that change by waves, beside all else; groups have nothing of their own."""

    kinds: ClassVar[list[str]] = ["full-switch", "weighted"]

    def __init__(self) -> None:
        super().__init__()
        self.story.serve(1, 2)

    @rule(
        number=st.integers(1, 3),
        weights=weights,
        manual=manual,
        soak_s=soaks,
        more=more,
        size=st.sampled_from([Quota(percent=10.0), Quota(count=2), Quota(count=3)]),
    )
    def start_base(
        self,
        number: int,
        weights: tuple[float, ...],
        manual: tuple[float, ...],
        soak_s: float,
        more: dict[str, Any],
        size: Quota,
    ) -> None:
        """Bring a base."""
        plan = a_weighted_plan(*weights, soak_s=soak_s, manual=manual, max_unavailable=size, **more)
        with contextlib.suppress(TransitionError, PlanError):
            self.story.start(a_base_wish(number), plan=plan)

    @invariant()
    def traffic_is_where_a_base_is_to_be(self) -> None:
        """Each release with traffic has a node that is to hold its base, or holds it."""
        story = self.story
        if not story.service.rollout or not story.route.stable:
            return
        wanted = [base_wanted(story.service, node) for node in FLEET]
        roots = {base_root(release) for release in wanted if release}
        route, releases = story.route, story.service.releases
        shares = {route.candidate: route.weight, route.stable: 100.0 - route.weight}
        for number, weight in shares.items():
            assert not weight or base_root(releases[number]) in roots, "\n".join(story.said)

    @invariant()
    def base_is_locked_while_it_moves(self) -> None:
        """And at no other time."""
        service = self.story.service
        moves = service.is_running and self.story.rollout.moves_base
        assert bool(service.around.base.lock) == moves

    def teardown(self) -> None:
        """In the end all nodes hold the base of what serves."""
        super().teardown()
        if self.story.service.rollout:
            self.story.obey()
            root = base_root(self.story.service.stable)
            assert {root} == {self.story.bases.get(node, "") for node in FLEET}


TestFromNothing = Machine.TestCase
TestFromNothing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
