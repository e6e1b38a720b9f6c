"""What a run of the engine was given is known to the next agent, and forgotten with that run."""

from pathlib import Path

import pytest

from tests.builders import a_root
from vctl_agent.engines.port import Description, Resident
from vctl_agent.registered import Registered
from vctl_plans.capability import EngineFacts

ONE, TWO, THREE = a_root(1), a_root(2), a_root(3)


def an_engine(incarnation: str, *roots: str, base: str = "") -> Description:
    return Description(
        facts=EngineFacts(),
        incarnation=incarnation,
        base_path=f"/artifacts/{base.removeprefix('b3:')}",
        adapters=tuple(Resident(f"s@{r[3:15]}", f"/artifacts/{r[3:]}") for r in roots),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "registered.json"


def opened(file: Path, *lying: str) -> Registered:
    made = Registered(file)
    made.open(lying)
    return made


def test_root_is_on_disk_before_the_engine_is_asked(file: Path) -> None:
    """A kill in the middle of the call loses nothing."""
    registered = opened(file)
    registered.see(an_engine("e1"))
    with registered.giving(ONE):
        assert {ONE} == opened(file).roots


def test_root_stays_until_another_run_of_the_engine_is_seen(file: Path) -> None:
    """Whether the call worked or not, and whatever the engine lists."""
    registered = opened(file)
    registered.see(an_engine("e1"))
    with pytest.raises(RuntimeError), registered.giving(ONE):
        raise RuntimeError
    registered.see(an_engine("e1"))
    assert {ONE} == opened(file).roots

    registered.see(None)
    assert {ONE} == registered.roots
    registered.see(an_engine("e2"))
    assert set() == opened(file).roots


def test_what_the_engine_lists_it_was_given(file: Path) -> None:
    """By whomever; its base is one of them, and what is no artifact of ours is not."""
    registered = opened(file)
    registered.see(an_engine("e1", ONE, base=THREE))
    registered.see(an_engine("e1", TWO, base="of the operator"))

    assert {ONE, TWO, THREE} == opened(file).roots


def test_root_given_while_the_engine_starts_anew_stays(file: Path) -> None:
    """The call may have reached the new one."""
    registered = opened(file)
    registered.see(an_engine("e1", TWO))
    with registered.giving(ONE):
        registered.see(an_engine("e2"))
        assert {ONE} == registered.roots
    assert {ONE} == opened(file).roots


def test_two_calls_for_one_root_are_two(file: Path) -> None:
    """The end of one does not end the other."""
    registered = opened(file)
    with registered.giving(ONE):
        with registered.giving(ONE):
            pass
        registered.see(an_engine("e2"))
        assert {ONE} == registered.roots


def test_without_a_file_the_engine_was_given_all_that_lies_there(file: Path) -> None:
    """An agent that noted nothing was here before, or the disk took no note."""
    opened(file, ONE, TWO).see(an_engine("e1"))
    assert {ONE, TWO} == opened(file).roots

    again = opened(file, ONE, TWO)
    again.see(an_engine("e1"))
    assert {ONE, TWO} == again.roots, "the run that was there first is the one that counts"
    again.see(an_engine("e2"))
    assert set() == opened(file, ONE, TWO).roots


def test_unreadable_file_counts_as_none(file: Path) -> None:
    """Nothing goes for it."""
    file.write_bytes(b"{")

    assert {ONE} == opened(file, ONE).roots


def test_disk_that_takes_no_note_leaves_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old one would say that the root was not given."""
    registered = opened(file)
    registered.see(an_engine("e1"))
    (file.parent / "registered.new").mkdir()  # in the way of the next
    with registered.giving(ONE):
        pass

    assert {ONE} == registered.roots
    assert not file.exists()
