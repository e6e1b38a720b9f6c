"""etcd is restored from a backup: nothing moves until an operator says so, then all go on."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import Fleet, Load, a_fleet, ask
from tests.etcd.servers import newest_binary

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("restore"),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve release 1."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=2) as made:
        said = made.vctl("rollout", "start", "--new-service", "--adapter", str(made.adapter("v1")))
        assert said.code == 0, said
        yield made


def etcdctl(fleet: Fleet, *arguments: str) -> None:
    binary = newest_binary()
    assert binary is not None
    command = [str(binary.with_name("etcdctl")), "--endpoints", fleet.dev.layout.endpoint]
    environment = {"ETCDCTL_API": "3", "PATH": os.environ["PATH"]}
    subprocess.run([*command, *arguments], check=True, capture_output=True, env=environment)


def restore(fleet: Fleet, snapshot: Path) -> None:
    """Kill etcd, and start it from *snapshot*."""
    fleet.dev.kill("", "etcd")
    data = fleet.folder / "etcd"
    shutil.rmtree(data)
    (peer,) = (
        part.removeprefix("default=")
        for part in fleet.dev.program("", "etcd").arguments
        if part.startswith("default=")
    )
    etcdctl(
        *(fleet, "snapshot", "restore", str(snapshot), "--data-dir", str(data)),
        *("--name", "default", "--initial-cluster", f"default={peer}"),
        *("--initial-advertise-peer-urls", peer),
    )
    fleet.dev.restart("", "etcd")


def answers(fleet: Fleet, node: str) -> int:
    return ask(fleet.dev.gateway_urls[node])[0]


def answers_or_loads(fleet: Fleet, node: str) -> int:
    """Return the release that answers; 0 while the one that is routed is not loaded yet."""
    try:
        return answers(fleet, node)
    except AssertionError as refused:
        if "release_not_ready" not in str(refused):
            raise
        return 0


def log(fleet: Fleet, name: str) -> str:
    return (fleet.folder / "logs" / f"{name}.log").read_text(errors="replace")


def test_a_restored_backup_moves_nothing_until_it_is_accepted(fleet: Fleet) -> None:
    """The last route serves on, also past restarts; then what the backup holds does."""
    snapshot = fleet.folder / "snapshot"
    etcdctl(fleet, "snapshot", "save", str(snapshot))
    second = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v2")))
    assert second.code == 0, second
    load = Load(list(fleet.dev.gateway_urls.values()))
    with load.running(each=1):
        load.wait_for(10)
        restore(fleet, snapshot)
        fleet.until(lambda: "was restored" in log(fleet, "n1-gateway"))
        fleet.until(lambda: "restored or replaced" in log(fleet, "n1-agent"))
        fleet.dev.restart("n1", "agent")  # it knows from the run before
        fleet.dev.restart("n2", "agent")
        time.sleep(3 * 2.0)  # longer than leases and looks: nothing comes of waiting
        load.wait_for(20)
        assert {release for release, _ in load.answers} == {2}
        assert fleet.stable() == 1  # what the backup says, and nobody follows
        assert not fleet.dev.read().present()

        said = fleet.vctl("config", "accept-restore", "--reason", "disk lost")
        assert said.code == 0, said
        assert "support: release 1" in said.err
        fleet.until(lambda: answers(fleet, "n1") == 1 and answers(fleet, "n2") == 1)
        fleet.until(lambda: len(fleet.dev.read().present()) == 2)
    assert load.failures == []

    third = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v3")))
    assert third.code == 0, (third, fleet.logs())
    assert answers(fleet, "n1") == answers(fleet, "n2") == 2  # the number is used again: I2 by root


def test_an_earlier_word_does_not_count_for_a_later_restore(fleet: Fleet) -> None:
    """The backup holds it: it was said of another restore."""
    snapshot = fleet.folder / "later"
    etcdctl(fleet, "snapshot", "save", str(snapshot))
    back = fleet.vctl("rollback", "--now", "--reason", "bad answers")
    assert back.code == 0, back
    before = log(fleet, "n1-agent").count("restored or replaced")
    restore(fleet, snapshot)
    fleet.until(lambda: log(fleet, "n1-agent").count("restored or replaced") > before)
    time.sleep(3 * 2.0)
    assert answers(fleet, "n1") == answers(fleet, "n2") == 1
    assert fleet.vctl("config", "accept-restore", "--reason", "again").code == 0
    # It was unloaded after the rollback.
    fleet.until(lambda: answers_or_loads(fleet, "n1") == answers_or_loads(fleet, "n2") == 2)
