"""The parts of a development fleet that need no fleet: programs, ports, the folder's lock."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vctl_cli.dev.fleet import DevFleet
from vctl_cli.dev.layout import MAX_SOCKET_BYTES, Layout, Options, clean
from vctl_cli.dev.ports import HOST, Ports
from vctl_cli.dev.program import Program, ended
from vctl_plans.errors import VctlError

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal,time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def program(tmp_path: Path, code: str) -> Program:
    arguments = [sys.executable, "-c", code]
    return Program("n1/agent", arguments, env=os.environ, log=tmp_path / "logs" / "n1-agent.log")


def wait_for_log(made: Program) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if made.log.exists() and (text := made.log.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError("nothing was logged")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_program_that_ignores_term_is_killed_with_its_children(tmp_path: Path):
    made = program(tmp_path, STUBBORN)
    made.start()
    child = int(wait_for_log(made))
    made.ask_to_end()
    assert not ended([made], within_s=0.2)
    made.kill()
    assert not made.is_running
    deadline = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def test_program_that_ends_by_itself_is_told_with_its_log(tmp_path: Path):
    made = program(tmp_path, "import sys; print('no such model'); sys.exit(3)")
    made.start()
    assert ended([made], within_s=10)
    assert made.has_died
    assert made.death().message == "n1/agent ended with code 3"
    assert "no such model" in made.death().hint


def test_program_that_was_asked_to_end_has_not_died(tmp_path: Path):
    made = program(tmp_path, "import time; time.sleep(60)")
    made.start()
    made.ask_to_end()
    assert ended([made], within_s=10)
    assert not made.has_died
    made.start()
    with pytest.raises(VctlError, match="runs already"):
        made.start()
    made.kill()


def test_program_that_is_not_there_is_an_error_of_ours(tmp_path: Path):
    made = Program("etcd", ["/no/such/etcd"], env={}, log=tmp_path / "etcd.log")
    with pytest.raises(VctlError, match="etcd cannot be started"):
        made.start()


def test_port_stays_ours_and_lets_our_program_listen():
    with Ports() as ports:
        port = ports.take()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()


def test_ports_count_up_from_the_first_and_a_taken_one_is_named():
    with Ports() as free:
        taken = free.take()
        with Ports(taken) as wanted, pytest.raises(VctlError, match=f"port {taken} is in use"):
            wanted.take()


def test_ports_are_taken_again_at_once_where_connections_linger():
    with Ports() as free:
        port = free.take()
        with socket.create_server((HOST, port)) as server:
            client = socket.create_connection((HOST, port))
            server.accept()[0].close()  # whoever closes first keeps the port in TIME_WAIT
            client.close()
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind((HOST, port))
    with Ports(port) as again:
        assert port == again.take()


def test_port_that_a_program_listens_on_is_refused():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with Ports(port) as wanted, pytest.raises(VctlError, match=f"port {port} is in use"):
            wanted.take()


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    with Ports() as ports:
        env = {"PATH": "/bin", "VCTL_FLEET": "x", "ETCDCTL_USER": "y"}
        yield Layout(tmp_path, tmp_path / "base", Options(nodes=2), ports=ports, env=env)


def test_gateways_share_a_key_that_nobody_else_can_read(layout: Layout):
    flags = [layout.gateway(node).arguments for node in layout.nodes]
    files = {given[given.index("--fleet-key-file") + 1] for given in flags}
    (key,) = (Path(file) for file in files)
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) == 64
    before = key.read_text()
    layout.gateway("n1")
    assert before == key.read_text()


def test_layout_gives_each_program_its_own_ports(layout: Layout):
    urls = {layout.url(node, part) for node in layout.nodes
            for part in ("engine", "gateway", "gateway-admin", "agent")}  # fmt: skip
    assert len(urls | {layout.endpoint}) - 1 == 8


def test_programs_inherit_nothing_that_points_at_another_fleet():
    assert clean({"PATH": "/bin", "VCTL_FLEET": "x", "ETCDCTL_USER": "y"}) == {"PATH": "/bin"}


def test_agent_and_gateway_of_a_node_share_a_socket(layout: Layout, tmp_path: Path):
    agent, gateway = layout.agent("n1", [tmp_path]), layout.gateway("n1")
    sockets = {p.arguments[p.arguments.index("--socket") + 1] for p in (agent, gateway)}
    assert len(sockets) == 1
    assert all(len(path) <= MAX_SOCKET_BYTES + 7 for path in sockets)
    assert str(tmp_path) == agent.arguments[agent.arguments.index("--allowed-root") + 1]


def test_folder_of_a_fleet_that_runs_is_refused(tmp_path: Path):
    one, other = (DevFleet(tmp_path, env={}) for _ in range(2))
    one._take_folder()
    with pytest.raises(VctlError, match="another fleet runs"):
        other._take_folder()
    one.stop()
    other._take_folder()
    other.stop()


@pytest.mark.e2e
@pytest.mark.torch
def test_dev_up_says_how_to_use_it_and_leaves_nothing(tmp_path: Path):
    pytest.importorskip("torch")
    log = tmp_path / "out"
    with log.open("w") as out:
        up = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vctl_cli",
                "dev",
                "up",
                "--nodes",
                "1",
                "--dir",
                tmp_path / "f",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 90
    while "curl" not in log.read_text() and up.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "export VCTL_FLEET=dev VCTL_ENDPOINTS=http://127.0.0.1:" in log.read_text()
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=30) == 0
    left = subprocess.run(
        ["pgrep", "-f", str(tmp_path / "f")], capture_output=True, text=True, check=False
    )
    assert left.stdout == ""
