"""Weighted 10-25-50-100 with 2,000 sessions over four nodes behind random load balancing.

What was measured is printed where it is not as it must be. Sessions that echo their pins arrive at
each step, for a pin keeps whoever has one where it is; those that echo none are there from the
beginning, and move as the weight grows.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.crowd import Crowd, Session, interval, went_back
from tests.e2e.support import SERVICE, Fleet, a_fleet
from vctl_plans.phase import RolloutPhase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("sessions"),
]

NODES, SESSIONS, WEIGHTS, TURNS = 4, 2000, (10, 25, 50, 100), 2


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with a_fleet(tmp_path, nodes=NODES) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", str(made.adapter("v1")))
        assert said.code == 0, said
        yield made


@dataclass
class Measured:
    """What came out, by step."""

    lines: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    def share(self, what: str, sessions: list[Session], new: int, weight: float) -> None:
        """Measure how many of *sessions* are on *new*, by their last answer."""
        low, high = interval(len(sessions), weight)
        on_it = sum(session.seen[-1] == new for session in sessions)
        self._note(f"{weight} %: {what}: {on_it} of {len(sessions)} ({low} to {high})",
                   is_right=low <= on_it <= high)  # fmt: skip

    def none(self, what: str, sessions: list[str]) -> None:
        """Measure that there are no such sessions."""
        self._note(f"{what}: {len(sessions)} {sessions[:3]}", is_right=not sessions)

    def _note(self, line: str, *, is_right: bool) -> None:
        self.lines.append(line)
        if not is_right:
            self.misses.append(line)

    def __str__(self) -> str:
        return "\n".join(["measured:", *self.lines, "not as it must be:", *self.misses])


class Rollout:
    """The rollout, and the sessions that go on meanwhile."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.crowd = Crowd(list(fleet.dev.gateway_urls.values()), random.Random(7))  # noqa: S311
        self.plain = [Session(f"session-{n}", echoes=False) for n in range(SESSIONS)]
        self.pinned: list[Session] = []
        self.measured = Measured()
        self.changed: list[str] = []  # sessions that changed while their pin's release was pinnable

    async def step(self, *command: str, code: int) -> None:
        """Have the fleet take a step under load; return once every gateway acts on the route."""

        async def act() -> None:
            said = await asyncio.to_thread(self.fleet.vctl, *command)
            assert said.code == code, said
            await asyncio.to_thread(self.fleet.until, self.is_agreed)

        await self.crowd.turn_while([*self.plain, *self.pinned], act)

    def is_agreed(self) -> bool:
        """Whether all gateways report the route's own revision."""
        seen = self.fleet.dev.read()
        revision = seen.services[SERVICE].route_revision
        reports = seen.present().values()
        return len(reports) == NODES and all(r.routes[SERVICE] == revision for r in reports)

    async def measure(self, weight: int, new: int) -> None:
        """Have all take their turns at a step, and new ones with pins come."""
        arrived = [
            Session(f"pinned-{weight}-{n}", echoes=True) for n in range(SESSIONS // len(WEIGHTS))
        ]
        self.pinned += arrived
        for _ in range(TURNS):
            await self.crowd.turn([*self.plain, *self.pinned], is_agreed=True)
        assert all(session.pin for session in self.pinned)
        self.measured.share("without pins", self.plain, new, weight)
        self.measured.share("with pins, arrived at this step", arrived, new, weight)

    def note_changes(self) -> None:
        """Look for sessions that were answered by two releases while both were pinnable."""
        self.changed = [s.name for s in self.pinned if len(set(s.seen)) > 1]


def test_shares_are_those_of_the_weights_and_no_session_goes_back(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Every gateway decides alike, whichever a session comes to."""
    plan = tmp_path / "plan.yaml"
    steps = ", ".join(f"{{weight: {weight}, soak: 100ms, manual: true}}" for weight in WEIGHTS)
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\nsteps: [{steps}]\n"
        f"release: {{adapter: {{source: {fleet.adapter('v2')}}}}}\n"
    )
    rollout = asyncio.run(_rolled_out(fleet, str(plan)))
    assert [] == rollout.measured.misses, rollout.measured
    assert RolloutPhase.CONVERGED is fleet.rollout().phase


async def _rolled_out(fleet: Fleet, plan: str) -> Rollout:
    rollout = Rollout(fleet)
    old, crowd, measured = fleet.stable(), rollout.crowd, rollout.measured
    await crowd.turn(rollout.plain, is_agreed=True)
    measured.none("on another before", [s.name for s in rollout.plain if s.seen != [old]])

    await rollout.step("rollout", "start", plan, code=4)
    new = fleet.rollout().to_release
    for weight in WEIGHTS:
        await rollout.measure(weight, new)
        if weight != WEIGHTS[-1]:
            await rollout.step("rollout", "promote", code=4)
    rollout.note_changes()
    await rollout.step("rollout", "promote", code=0)
    await crowd.turn([*rollout.plain, *rollout.pinned], is_agreed=True)

    everybody = [*rollout.plain, *rollout.pinned]
    measured.none("changed while pinnable", rollout.changed)
    measured.none("with pins, went back",
                  [s.name for s in rollout.pinned if went_back(s.seen, new)])  # fmt: skip
    measured.none("without pins, went back while all gateways agreed",
                  [s.name for s in rollout.plain if went_back(s.seen_agreed, new)])  # fmt: skip
    measured.none("not on the new one in the end",
                  [s.name for s in everybody if s.seen[-1] != new])  # fmt: skip
    return rollout
