"""What operators plan: all that a plan can say, drawn. A new kind of plan is drawn here."""

from random import Random

from tests.builders import SERVICE
from tests.sim.clients import TENANTS, USERS
from tests.sim.groundwork import adapter_wish, prompt_wish
from vctl_plans.groups import Group, Groups
from vctl_plans.phase import Component
from vctl_plans.plan import Plan, PlanStep, Strategy, Watch
from vctl_plans.release import Artifact
from vctl_plans.route import Consistency
from vctl_plans.units import Quota

ADAPTERS = 5
PREPARE_S, CONVERGE_S, DRAIN_S, HOLD_S = 30.0, 12.0, 4.0, 2.0


def draw_plan(
    random: Random, *, is_sound: bool = False, is_narrow: bool = False
) -> tuple[Plan, Groups | None]:
    """Return a plan that brings a release, and the groups that it names.

    Args:
        random: What is drawn from.
        is_sound: Whether it must reach all traffic and all nodes.
        is_narrow: Whether engines have few places for adapters.
    """
    strategies: list[Strategy] = ["weighted", "full-switch", "user-group"]
    odds = [0.0 if is_sound and is_narrow else 0.5, 0.4, 0.0 if is_sound else 0.15]
    strategy = random.choices(strategies, odds)[0]
    groups = draw_groups(random) if strategy == "user-group" else None
    watch = None if is_sound else _watch(random)
    consistency = random.choices(list(Consistency), [0.75, 0.08, 0.17])[0]
    can_wait = strategy != "user-group" and consistency is not Consistency.STRICT
    if is_sound and is_narrow:
        consistency, can_wait = Consistency.SESSION, True
    plan = Plan(
        service=SERVICE,
        strategy=strategy,
        steps=_steps(random, strategy, soaks=(4, 8) if watch else (0, 0, 2, 8)),
        groups=groups.digest if groups else "",
        consistency=consistency,
        allow_downtime=can_wait and (is_sound or random.random() < 0.5),
        ready=Quota(percent=100.0) if is_sound else _gate(random),
        max_failed=random.choice([0, 0, 0, 1]),
        max_absent=random.choice([Quota(percent=10.0), Quota(percent=34.0), Quota(count=1)]),
        watch=watch,
        retain=random.choice([0, 1, 1, 2]),
        prepare_s=PREPARE_S,
        converge_s=CONVERGE_S,
        drain_s=DRAIN_S,
        hold_s=HOLD_S,
    )
    return plan, groups


def draw_wish(random: Random, *, fresh: int = 0) -> dict[Component, Artifact]:
    """Return the components to bring: few are chosen among, so that the same ones come again."""
    adapter, prompt = fresh or random.randint(1, ADAPTERS), random.randint(1, 3)
    kind = random.random()
    if kind < 0.15 and not fresh:
        return prompt_wish(prompt)
    return adapter_wish(adapter) | (prompt_wish(fresh or prompt) if kind < 0.35 else {})


def _steps(random: Random, strategy: Strategy, *, soaks: tuple[float, ...]) -> tuple[PlanStep, ...]:
    weights = random.choice([(50, 100), (10, 50, 100), (10, 25, 50, 100)])
    return tuple(
        PlanStep(
            weight=weight,
            soak_s=random.choice(soaks),
            manual=random.random() < 0.08,
        )
        for weight in (weights if strategy == "weighted" else (100,))
    )


def _gate(random: Random) -> Quota:
    quotas = [Quota(percent=100.0), Quota(percent=67.0), Quota(count=1)]
    return random.choices(quotas, [0.8, 0.15, 0.05])[0]


def _watch(random: Random) -> Watch | None:
    if random.random() < 0.8:
        return None
    return Watch(
        min_requests=8,
        interval_s=2.0,
        consecutive=random.choice([1, 1, 2]),
        on_breach=random.choice(["rollback", "pause"]),
        on_inconclusive=random.choice(["extend", "extend", "pause", "proceed"]),
    )


def draw_groups(random: Random) -> Groups:
    """Return one of few groups, so that the same ones come again."""
    kinds = [
        Group(name="staff", users=tuple(sorted(user for user in USERS if user)[:2])),
        Group(name="acme", tenant=TENANTS[0]),
        Group(name="half", percent=50.0),
    ]
    return Groups(groups=(random.choice(kinds),))
