"""A long fetch is told of three times, and a short one not at all."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.support import SERVICE, Node, a_fleet, a_rollout, make_releases
from vctl_agent.artifacts.fetch import Progress
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.fetched import LONG_S, STEPS, Fetched
from vctl_plans import weights
from vctl_plans.phase import NodePhase
from vctl_plans.release import Artifact

MANY = 1000


def _told(fetched: Fetched, *, index: int = 0, begin: int = 0) -> list[int]:
    steps = (fetched.step(index, done, MANY) for done in range(begin, MANY + 1))
    return [step for step in steps if step]


def test_long_fetch_is_told_of_in_steps() -> None:
    clock = itertools.count(0.0, 1.0)
    assert [25, 50, 75] == _told(Fetched([MANY], lambda: next(clock)))


def test_short_fetch_is_not_told_of() -> None:
    assert [] == _told(Fetched([MANY], lambda: 0.0))


def test_fetch_that_goes_on_begins_where_it_is() -> None:
    """One step, not those that were passed before."""
    clock = itertools.count(0.0, LONG_S)
    assert [50, 75] == _told(Fetched([0], lambda: next(clock)), begin=600)


def test_all_artifacts_of_a_release_count() -> None:
    """A small prompt beside a large adapter is not half of the way."""
    clock = itertools.count(0.0, LONG_S)
    fetched = Fetched([3 * MANY, MANY], lambda: next(clock))
    steps = [fetched.step(0, done, 3 * MANY) for done in range(3 * MANY + 1)]
    assert [25, 50, 75] == [step for step in steps if step]
    assert [] == _told(fetched, index=1)


def test_fetch_of_unknown_size_is_not_told_of() -> None:
    clock = itertools.count(0.0, LONG_S)
    fetched = Fetched([0], lambda: next(clock))
    assert [0] * 10 == [fetched.step(0, done, 0) for done in range(10)]


class _Slow(ArtifactStore):
    """Tells a thousand times of a fetch of minutes, and waits until each step is reported."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "state", [folder])
        self.tick: Callable[[], None] = lambda: None
        self.is_reported: Callable[[int], bool] = lambda _: True

    def stage(
        self, artifact: Artifact, progress: Progress, *, kind: weights.Kind = "adapter"
    ) -> Path:
        for done in range(MANY + 1):
            self.tick()
            progress(NodePhase.FETCHING, done, MANY)
            percent = 100 * done // MANY
            deadline = time.monotonic() + 10
            while percent in STEPS and not self.is_reported(percent):
                assert time.monotonic() < deadline
                time.sleep(0.001)
        return super().stage(artifact, lambda *_: None, kind=kind)


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, [0, 25, 50, 75]), (0.0, [0])])
async def test_report_changes_once_a_step(
    tmp_path: Path, seconds: float, expected: list[int]
) -> None:
    """And no more is written to the store, however often the fetch tells."""
    artifacts = _Slow(tmp_path)
    node = Node(tmp_path, artifacts=artifacts)

    def percents() -> list[int]:
        said = [report.release(SERVICE, 1) for report in node.reports]
        return [s.fetched_percent for s in said if s and s.phase is NodePhase.FETCHING]

    def tick() -> None:
        node.now += seconds

    artifacts.tick = tick
    artifacts.is_reported = lambda percent: not seconds or percent in percents()
    node.reconciler.want(a_fleet(make_releases(tmp_path, 1), rollout=a_rollout(1)))

    await node.settle(lambda: node.phase(1) is NodePhase.READY)

    assert expected == percents()
    last = node.reports[-1].release(SERVICE, 1)
    assert last
    assert last.fetched_percent == 0
