"""What a rollout wants of every node."""

import pytest

from tests.builders import a_rollout, a_route
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import NAMED, Roster, advanced, listed, wanted


@pytest.mark.parametrize("phase", [P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.PAUSED])
def test_rollout_that_runs_wants_what_it_brings(phase: P) -> None:
    """Beside what serves and what is retained."""
    assert {1, 2, 5} == wanted(a_route(instant=(5,)), a_rollout(phase))


def test_rollout_that_goes_back_wants_where_it_goes() -> None:
    """And no more what it brought."""
    assert {1, 7} == wanted(a_route(), a_rollout(P.ROLLING_BACK, back_to=7))


@pytest.mark.parametrize("phase", [phase for phase in P if phase.is_terminal])
def test_rollout_that_has_ended_wants_nothing(phase: P) -> None:
    """The route alone does."""
    assert {1} == wanted(a_route(), a_rollout(phase))


def test_nothing_is_wanted_of_a_service_that_has_nothing() -> None:
    """No route, no rollout."""
    assert frozenset() == wanted(None, None)


def test_decision_raises_the_count_by_one() -> None:
    """With its phase, its sentence, and what else changes."""
    after = advanced(a_rollout(seq=4), P.FAILED, "no", unload=(2,))

    assert (5, P.FAILED, "no", (2,)) == (after.seq, after.phase, after.sentence, after.unload)


def test_long_lists_of_nodes_are_cut() -> None:
    """The first are named, the rest are counted."""
    names = tuple(f"n{i:02}" for i in range(NAMED + 3))

    assert "a, b" == listed(("a", "b"))
    assert listed(names).endswith("n19 and 3 more")


def test_roster_is_named_by_its_nodes() -> None:
    """The same nodes are the same roster."""
    assert Roster(nodes=("a",)).digest == Roster(nodes=("a",)).digest
