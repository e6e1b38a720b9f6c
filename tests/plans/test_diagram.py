"""The docs' diagrams are the tables that decide."""

from pathlib import Path

import pytest

from vctl_plans import diagram
from vctl_plans.machine import TABLE
from vctl_plans.node_machine import MOVES

REPOSITORY = Path(__file__).parents[2]


def test_page_is_up_to_date() -> None:
    """Else `make generate` was forgotten."""
    assert diagram.page() == (REPOSITORY / diagram.TARGET).read_text()


def test_every_move_of_a_rollout_is_drawn() -> None:
    """Each arrow with all of its events."""
    drawn = diagram.rollout_diagram()
    moves = {(a, b) for a, rules in TABLE.items() for rule in rules.values() for b in rule.to}

    assert all(f"    {a} --> {b}: " in drawn for a, b in moves if a is not b)
    assert "    preparing --> superseded: supersede\n" in drawn


def test_every_move_of_a_node_is_drawn() -> None:
    """And no other."""
    arrows = [f"    {a} --> {b}" for a, after in MOVES.items() for b in after]

    assert {*arrows, "    [*] --> absent"} == set(diagram.node_diagram().splitlines()[1:])


def test_program_writes_checks_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 when all is well, 1 when the page is stale, 2 for anything else."""
    monkeypatch.chdir(tmp_path)

    assert 1 == diagram.main(["--check"])
    assert "docs/phases.md is stale: run make generate\n" == capsys.readouterr().err
    assert (0, 0) == (diagram.main([]), diagram.main(["--check"]))
    assert 2 == diagram.main(["--wrong"])
