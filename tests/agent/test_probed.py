"""A probe counts for one run of the engine, across agents' lives, and needs no disk to count."""

from pathlib import Path

import pytest

from vctl_agent.probed import Probed


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return _open(tmp_path)


def _open(folder: Path) -> Probed:
    made = Probed(folder / "probed.json")
    made.open()
    return made


def test_probe_is_known_to_the_next_agent(probed: Probed, tmp_path: Path) -> None:
    """For the same run of the engine, and for no other."""
    probed.add("run-1", "support@1")

    later = _open(tmp_path)

    assert later.has("run-1", "support@1")
    assert not later.has("run-2", "support@1")


def test_another_run_makes_the_record_void(probed: Probed) -> None:
    """An engine that was restarted holds nothing that was probed."""
    probed.add("run-1", "support@1")
    probed.add("run-2", "support@2")

    assert not probed.has("run-2", "support@1")
    assert not probed.has("run-1", "support@1")


@pytest.mark.parametrize("content", [b"", b"{", b'{"incarnation": 7}', b"\xff"])
def test_record_that_cannot_be_read_counts_as_nothing(tmp_path: Path, content: bytes) -> None:
    """It costs a probe."""
    (tmp_path / "probed.json").write_bytes(content)

    assert not _open(tmp_path).has("run-1", "support@1")


def test_disk_that_takes_nothing_costs_a_probe_and_no_agent(probed: Probed, tmp_path: Path) -> None:
    """The probe counts for this process; the next one does it again."""
    (tmp_path / "probed.new").mkdir()  # as a full or read-only disk: nothing can be written there

    probed.add("run-1", "support@1")

    assert probed.has("run-1", "support@1")
    assert not _open(tmp_path).has("run-1", "support@1")
