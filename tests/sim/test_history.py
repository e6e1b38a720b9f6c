"""A history is repeated by its seed alone, and a broken one is made small."""

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from tests.sim.faults import FAULTS
from tests.sim.history import History, Outcome, Spec, run
from tests.sim.shrink import shrunk
from tests.sim.troubles import Trouble, draw_troubles

_SEEDS = (3, 8, 21)


@pytest.mark.parametrize("seed", _SEEDS)
def test_history_is_the_same_each_time(seed: int) -> None:
    """The transcript tells of every write, fault and command, with its time."""
    first = run(Spec(seed=seed), is_told=True)
    again = run(Spec(seed=seed), is_told=True)

    assert first.transcript == again.transcript
    assert first.events == again.events


def test_history_is_the_same_in_another_process() -> None:
    """Where strings hash otherwise, and objects lie elsewhere."""
    told = [_told_by_another_process(hash_seed) for hash_seed in ("1", "2")]

    assert told[0] == told[1]
    assert "peace" in told[0]


def _told_by_another_process(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.sim.run", "--histories", "1", "--seed"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return "".join(
        subprocess.run(
            [*command, str(seed)], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for seed in _SEEDS
    )


def test_troubles_are_drawn_by_seed_and_begin_with_a_rollout() -> None:
    history, again = History(Spec(seed=5)), History(Spec(seed=5))
    kinds = {trouble.kind for trouble in history.troubles}

    assert history.troubles == again.troubles
    assert "press start" in kinds
    assert all(kind in FAULTS or kind.startswith("press ") for kind in kinds)


def _breaks_with(needed: set[int], nodes: int) -> Callable[[Spec], Outcome]:
    """Return runs that break as long as the *needed* troubles and enough nodes are there."""

    def attempt(spec: Spec) -> Outcome:
        history = History(spec)
        is_there = not needed & set(spec.without)
        broken = "I4: planted" if is_there and history.size >= nodes else ""
        return Outcome(seed=spec.seed, broken=broken, transcript="told")

    return attempt


def test_shrinker_leaves_only_what_the_breakage_needs() -> None:
    seed = next(s for s in range(1000) if len(History(Spec(seed=s)).troubles) >= 9)
    count = len(History(Spec(seed=seed)).troubles)
    attempt = _breaks_with({1, count - 2}, nodes=2)
    spec, outcome, tries = shrunk(Spec(seed=seed, nodes=7), attempt(Spec(seed=seed)), attempt)

    assert set(range(count)) - {1, count - 2} == set(spec.without)
    assert 2 == spec.nodes
    assert "I4: planted" == outcome.broken
    assert tries < 100


def test_shrinker_keeps_to_the_same_breakage() -> None:
    """A smaller history that breaks otherwise tells of something else."""

    def attempt(spec: Spec) -> Outcome:
        broken = "I5: another" if spec.without else "I4: planted"
        return Outcome(seed=spec.seed, broken=broken)

    spec, outcome, _ = shrunk(Spec(seed=1, nodes=1), attempt(Spec(seed=1)), attempt)

    assert () == spec.without
    assert "I4: planted" == outcome.broken


def test_spec_says_how_it_is_repeated() -> None:
    spec = Spec(seed=7, nodes=3, until_s=12.5, without=(1, 4))

    assert "--seed 7 --histories 1 --nodes 3 --until 12.5 --without 1,4" == spec.arguments


def test_trouble_says_what_and_when() -> None:
    by_phase = Trouble(kind="cut off", phase="soaking", at_s=0.5, node=3, lasts_s=2)

    assert "cut off 0.500s after soaking, node 3, for 2.00s" == str(by_phase)


def test_each_fault_is_drawn() -> None:
    drawn = {
        trouble.kind
        for seed in range(300)
        for trouble in draw_troubles(Random(seed), list(FAULTS), until_s=30.0)  # noqa: S311
    }

    assert set() == set(FAULTS) - drawn
