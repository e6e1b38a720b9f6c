"""The gateway beside what a user would use instead: straight to the engine, and `vllm-router`.

    python -m bench.gateway [--rounds 3] [--seconds 3] [--tokens 100] [--router PATH]

Each contestant runs on one core, engine and clients on another. Rounds are interleaved. Latency and
rate come from the clients; CPU of the contestant's process comes from the kernel, and is what
remains true on a machine that does other things.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop

from bench import load as clients
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.persist import Saver
from vctl_agent.local import AgentState, ReadyRelease
from vctl_plans.codec import encode
from vctl_plans.keys import Keys
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, Release, release_digest
from vctl_plans.route import Route
from vctl_plans.store.port import KeyValue, Update

GATEWAY_CORE, LOAD_CORE = 0, 1
CONNECTIONS = (1, 8, 64, 256)
STREAMS = 256
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BODY = {
    "model": "support",
    "messages": [{"role": "user", "content": "What is the capital of France? " * 10}],
    "max_tokens": 64,
}


@dataclass
class Contestant:
    """Something that clients ask."""

    name: str
    port: int
    pids: tuple[int, ...] = ()
    samples: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)

    def cpu_s(self) -> float:
        return sum(_cpu_s(pid) for pid in self.pids)

    def peak_mib(self) -> float:
        return sum(_peak_mib(pid) for pid in self.pids)


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process; its children are processes of their own."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) * _TICK_S


def _wait_port(port: int) -> None:
    ends = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > ends:
            raise SystemExit(f"nothing listens on port {port}")
        time.sleep(0.05)


def _on_core(core: int) -> list[str]:
    program = shutil.which("taskset")
    if program is None:
        raise SystemExit("taskset (util-linux) is needed: each contestant gets a core of its own")
    return [program, "--cpu-list", str(core)]


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: list[str], core: int, log: Path) -> Iterator[int]:
    with log.open("wb") as out:
        process = subprocess.Popen([*_on_core(core), *command], stdout=out, stderr=out)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _read_file(path: Path) -> str:
    ends = time.monotonic() + 60
    while not path.exists() or not path.read_text().strip():
        if time.monotonic() > ends:
            raise SystemExit(f"{path} was not written")
        time.sleep(0.05)
    return path.read_text().strip()


def a_release(number: int) -> Release:
    """Return a release of the service that clients ask for."""
    adapter = Artifact(root="b3:" + f"{number:08x}" * 8, source=f"file:///v{number}")
    draft = Release(
        service="support",
        number=number,
        components={Component.ADAPTER: adapter},
        vector={Component.ADAPTER: number},
    )
    return msgspec.structs.replace(draft, digest=release_digest(draft))


async def _leave_state(folder: Path, engine_url: str) -> None:
    """Leave on disk what a gateway leaves that serves: it then needs neither etcd nor agent."""
    release = a_release(1)
    keys = Keys("bench")
    values = {
        keys.release("support", 1): encode(release),
        keys.route("support"): encode(Route(service="support", stable=1, salt="s")),
    }
    live = Live(Acted(), prefix=keys.services, clock=lambda: 0.0)
    entries = {k: KeyValue(k, v, create_revision=1, mod_revision=5) for k, v in values.items()}
    live.learn(Update(9, entries, frozenset(entries)))
    ready = ReadyRelease(
        service="support", number=1, digest=release.digest, model=release.engine_name
    )
    live.accept(AgentState(boot_id="bench", engine_url=engine_url, ready=(ready,)))
    await Saver(live, folder, "bench").save()


@contextlib.contextmanager
def _gateway(folder: Path, engine_port: int, *flags: str) -> Iterator[Contestant]:
    state = folder / "state"
    state.mkdir()
    asyncio.run(_leave_state(state, f"http://127.0.0.1:{engine_port}"))
    port_file = folder / "port"
    command = [
        *(sys.executable, "-m", "vctl_agent.gateway", "--fleet", "bench", "--node", "n1"),
        *("--listen", "127.0.0.1:0", "--port-file", str(port_file), "--state", str(state)),
        *("--socket", str(folder / "gw.sock"), "--endpoints", f"127.0.0.1:{_free_port()}"),
        *flags,
    ]
    with _running(command, GATEWAY_CORE, folder / "gateway.log") as pid:
        port = int(_read_file(port_file).rpartition(":")[2])
        yield Contestant("vctl-gateway", port, (pid,))


@contextlib.contextmanager
def _router(program: str, folder: Path, engine_port: int) -> Iterator[Contestant]:
    port = _free_port()
    command = [
        *(program, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{engine_port}", "--policy", "round_robin"),
        *("--prometheus-port", str(_free_port()), "--log-level", "warning"),
    ]
    with _running(command, GATEWAY_CORE, folder / "router.log") as pid:
        _wait_port(port)
        time.sleep(2)  # until it has looked at its worker
        yield Contestant("vllm-router", port, (pid,))


def _measure(contestant: Contestant, connections: int, seconds: float) -> None:
    before = contestant.cpu_s()
    body = json.dumps(BODY).encode()
    address = ("127.0.0.1", contestant.port)
    load = uvloop.run(clients.run(address, body, connections=connections, seconds=seconds))
    if load.failures:
        raise SystemExit(f"{contestant.name}: {load.failures} of {load.requests} failed")
    cpu_us = 1e6 * (contestant.cpu_s() - before) / load.requests
    sample = (load.rate, load.quantile_ms(0.5), load.quantile_ms(0.99), cpu_us)
    contestant.samples.setdefault(f"{connections}", []).append(sample)


def _measure_streams(contestant: Contestant, tokens: int) -> None:
    before = contestant.cpu_s()
    body = json.dumps(BODY | {"stream": True, "max_tokens": tokens}).encode()
    address = ("127.0.0.1", contestant.port)
    load = uvloop.run(clients.run(address, body, connections=STREAMS, seconds=0))
    if load.failures or load.events != STREAMS * tokens:
        said = f"{load.failures} failures, {load.events} of {STREAMS * tokens} events"
        raise SystemExit(f"{contestant.name}: {said}")
    cpu_us = 1e6 * (contestant.cpu_s() - before) / load.events
    sample = (load.events / load.wall_s, load.quantile_ms(0.5), load.quantile_ms(0.99), cpu_us)
    contestant.samples.setdefault("streams", []).append(sample)


def _table(contestants: list[Contestant]) -> str:
    lines = [f"{'':>14} {'':>9} {'per s':>8} {'p50 ms':>8} {'p99 ms':>8} {'CPU us each':>12}"]
    for kind in (*map(str, CONNECTIONS), "streams"):
        for contestant in contestants:
            samples = contestant.samples.get(kind)
            if samples:
                rate, p50, p99, cpu = (
                    statistics.median(column) for column in zip(*samples, strict=True)
                )
                figures = f"{rate:8.0f} {p50:8.2f} {p99:8.2f} {cpu:12.1f}"
                lines.append(f"{contestant.name:>14} {kind:>9} {figures}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--tokens", type=int, default=100, help="of each stream, 50 a second")
    parser.add_argument("--only-streams", action="store_true")
    parser.add_argument("--router", default="", help="a Python that has vllm-router")
    parser.add_argument("--no-access-log", action="store_true")
    given = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    folder = Path(tempfile.mkdtemp(prefix="vctl-bench-"))
    try:
        with contextlib.ExitStack() as stack:
            port_file = folder / "engine-port"
            command = [sys.executable, "-m", "bench.stub_engine", str(port_file)]
            engine = stack.enter_context(_running(command, LOAD_CORE, folder / "engine.log"))
            engine_port = int(_read_file(port_file))
            flags = ("--access-log", "off") if given.no_access_log else ()
            contestants = [
                Contestant("direct", engine_port, (engine,)),
                stack.enter_context(_gateway(folder, engine_port, *flags)),
            ]
            if given.router:
                contestants.append(stack.enter_context(_router(given.router, folder, engine_port)))
            for number in range(given.rounds):
                for connections in () if given.only_streams else CONNECTIONS:
                    for contestant in contestants:
                        _measure(contestant, connections, given.seconds)
                for contestant in contestants:
                    _measure_streams(contestant, given.tokens)
                sys.stderr.write(f"round {number + 1} of {given.rounds}\n")
            print(_table(contestants))
            for contestant in contestants:
                print(f"{contestant.name:>14} held {contestant.peak_mib():.0f} MiB at most")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
