"""A fleet whose etcd knows its users: those that `vctl config init-auth` makes, and no others.

A whole rollout works with them, and none may do what is another's.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.support import LEASE_TTL_S, SERVICE, Fleet, a_fleet
from tests.etcd.servers import newest_binary
from vctl_cli.dev.layout import clean
from vctl_cli.dev.program import Program
from vctl_cli.programs import command_of
from vctl_plans.errors import Rejected
from vctl_plans.keys import Keys
from vctl_plans.store.etcd import EtcdStore
from vctl_plans.store.settings import StoreSettings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("auth"),
]
KEYS = Keys("dev")
NODES = ("n1", "n2")
READER, OPERATOR, CONDUCTOR = (f"vctl-dev-{kind}" for kind in ("reader", "operator", "conductor"))
ROOT = {"ETCDCTL_USER": "root:root"}


def password(user: str) -> str:
    return f"secret-of-{user}"


def shell(fleet: Fleet, script: str, env: Mapping[str, str]) -> None:
    """Run commands of etcdctl as a person would."""
    binary = newest_binary()
    assert binary is not None
    done = subprocess.run(
        ["sh", "-euc", script],
        env={
            "PATH": f"{binary.parent}:{os.environ['PATH']}",
            "ETCDCTL_ENDPOINTS": fleet.dev.layout.endpoint,
            "ETCDCTL_API": "3",
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that may not conduct, and a process that does; each with its own user."""
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        made = stack.enter_context(a_fleet(folder, nodes=2, agent_arguments=("--conduct", "off")))
        make_users(made, folder)
        for node in NODES:
            for part in ("gateway", "agent"):
                made.dev.restart(node, part, more_env=user(f"vctl-dev-node-{node}"))
        conductor = a_conductor(made)
        stack.callback(conductor.kill)
        conductor.start(more_env=user(CONDUCTOR))
        yield made


def make_users(fleet: Fleet, folder: Path) -> None:
    passwords = folder / "passwords"
    passwords.mkdir()
    for name in (READER, OPERATOR, CONDUCTOR, *(f"vctl-dev-node-{node}" for node in NODES)):
        (passwords / name).write_text(password(name))
    said = fleet.vctl("config", "init-auth", "--passwords", str(passwords))
    assert (said.code, said.err) == (0, "")
    shell(fleet, "etcdctl user add root:root; etcdctl user grant-role root root", {})
    shell(fleet, said.out, {})
    shell(fleet, "etcdctl auth enable", {})


def user(name: str) -> dict[str, str]:
    return {"VCTL_USER": f"{name}:{password(name)}"}


def a_conductor(fleet: Fleet) -> Program:
    arguments = {
        "--fleet": fleet.dev.options.fleet,
        "--node": "c1",
        "--endpoints": fleet.dev.layout.endpoint,
        "--lease-ttl": f"{LEASE_TTL_S:g}",
    }
    flat = [part for pair in arguments.items() for part in pair]
    return Program(
        "c1",
        [command_of("vctl-agent"), "--conductor-only", *flat],
        env=clean(os.environ) | {"NO_PROXY": "127.0.0.1"},
        log=fleet.folder / "logs" / "c1-agent.log",
    )


def vctl(fleet: Fleet, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the user *name*."""
    return subprocess.run(
        [sys.executable, "-m", "vctl_cli", *arguments],
        env=fleet.env | user(name),
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def test_a_whole_rollout_works_with_these_users(fleet: Fleet) -> None:
    """Start, verify on the nodes, the next release by steps, a rollback, and what is to be seen."""
    v1, v2 = str(fleet.adapter("v1")), str(fleet.adapter("v2"))
    for arguments in (
        ("rollout", "start", "--new-service", "--adapter", v1),
        ("verify-weights", "--service", SERVICE),
        ("rollout", "start", "--adapter", v2, "--steps", "50,100", "--soak", "1s"),
        ("rollback", "--now", "--reason", "as a test"),
        ("node", "gc"),
    ):
        done = vctl(fleet, OPERATOR, *arguments)
        assert done.returncode == 0, (arguments, done.stderr, fleet.logs())
    seen = vctl(fleet, READER, "status")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert "rolled_back" in seen.stdout
    assert vctl(fleet, READER, "rollout", "history").returncode == 0


def test_a_reader_changes_nothing_and_is_told_what_is_lacking(fleet: Fleet) -> None:
    done = vctl(fleet, READER, "rollout", "start", "--adapter", str(fleet.adapter("v3")))
    assert done.returncode == 6
    assert f"etcd does not let user '{READER}'" in done.stderr
    assert "vctl config init-auth" in done.stderr


def test_each_is_refused_beyond_its_own(fleet: Fleet) -> None:
    """Every key of the fleet, written by every user: the table of who may."""
    n1, n2 = (f"vctl-dev-node-{node}" for node in NODES)
    may_write = {
        KEYS.route("x"): {OPERATOR, CONDUCTOR},
        KEYS.spec("x"): {OPERATOR, CONDUCTOR},
        KEYS.base: {OPERATOR, CONDUCTOR},
        KEYS.request("x"): {OPERATOR},
        KEYS.plan("x"): {OPERATOR},
        KEYS.roster("x"): {OPERATOR},
        KEYS.groups("x"): {OPERATOR},
        KEYS.golden("x"): {OPERATOR},
        KEYS.decision("x", "r", 1): {OPERATOR, CONDUCTOR},
        KEYS.progress("x"): {CONDUCTOR},
        KEYS.alert("x"): {CONDUCTOR},
        KEYS.summary: {CONDUCTOR},
        KEYS.config: set(),
        KEYS.node("n1"): {n1},
        KEYS.report("n1"): {n1},
        KEYS.statistics_of("n1"): {n1},
        KEYS.node("n11"): set(),
        KEYS.report("n2"): {n2},
        Keys("other").route("x"): set(),
    }
    found = asyncio.run(_written(fleet, (READER, OPERATOR, CONDUCTOR, n1, n2), may_write))
    assert found == may_write


def test_a_node_reads_what_all_watch_and_no_other_node(fleet: Fleet) -> None:
    found = asyncio.run(
        _read(fleet, "vctl-dev-node-n1", (KEYS.services, KEYS.requests, KEYS.nodes, KEYS.reports))
    )
    assert found == {KEYS.services, KEYS.requests}


async def _written(fleet, users, keys) -> dict[str, set[str]]:
    """Return who could write each key, with what it held or something that nobody reads."""
    root = EtcdStore(StoreSettings((fleet.dev.layout.endpoint,), user="root", password="root"))
    held = {key: await root.get(key) for key in keys}
    found: dict[str, set[str]] = {key: set() for key in keys}
    for name in users:
        store = _store(fleet, name)
        for key in keys:
            before = held[key]
            try:
                await store.put(
                    key, before.value if before else b"", lease_id=before.lease_id if before else 0
                )
            except Rejected:  # beyond its own
                continue
            else:
                found[key].add(name)
        await store.close()
    await root.close()
    return found


async def _read(fleet, name, prefixes) -> set[str]:
    store, found = _store(fleet, name), set()
    for prefix in prefixes:
        with contextlib.suppress(Rejected):
            await store.list(prefix)
            found.add(prefix)
    await store.close()
    return found


def _store(fleet: Fleet, name: str) -> EtcdStore:
    endpoint = fleet.dev.layout.endpoint
    return EtcdStore(StoreSettings((endpoint,), user=name, password=password(name)))
