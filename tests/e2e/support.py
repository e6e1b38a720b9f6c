"""Real fleets and real commands: what a user would start and type."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vctl_cli.dev import DevFleet
from vctl_cli.dev.layout import Options
from vctl_cli.dev.models import BASE_SEED, RANK
from vctl_plans.errors import StoreError
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Rollout
from vctl_plans.snapshot import Service

SERVICE = "support"
LEASE_TTL_S = 2.0
ADAPTERS = {"v1": 1, "v2": 2, "v3": 3}
FAULTS = "faults"
"""In a fleet's folder: what its engines are to do wrong, where they were told to read it."""


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


class Fleet:
    """A development fleet with a `vctl` that acts on it."""

    def __init__(self, dev: DevFleet) -> None:
        self.dev = dev
        self.folder = dev.folder

    @property
    def env(self) -> dict[str, str]:
        own = {"VCTL_SERVICE": SERVICE, "XDG_CONFIG_HOME": str(self.folder / "config")}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VCTL_", "ETCD"))}
        return kept | self.dev.environment | own

    def adapter(self, name: str) -> Path:
        return self.dev.models.adapter(name)

    def new_adapter(self, name: str, seed: int) -> Path:
        """Make an adapter of its own for a test: nobody has hashed, fetched or loaded it."""
        from vctl_agent.engines.torch.program import make_adapter

        make_adapter(self.adapter(name), base=self.dev.models.base, seed=seed, rank=RANK)
        return self.adapter(name)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and do not wait for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "vctl_cli", *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def vctl(self, *arguments: str, within_s: float = 60) -> Said:
        """Run a command to its end."""
        process = self.begin(*arguments)
        try:
            out, err = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{arguments} did not end:\n{out}\n{err}\n{self.logs()}") from None
        return Said(process.returncode, out, err)

    def service(self) -> Service:
        return self.dev.read().services.get(SERVICE, Service(name=SERVICE))

    def rollout(self) -> Rollout:
        rollout = self.service().rollout
        assert rollout is not None
        return rollout

    def stable(self) -> int:
        return self.service().current_route.stable

    def others(self) -> list[str]:
        """Return the names of the adapters that the stable release does not have."""
        stable = self.service().stable
        assert stable is not None
        assert stable.adapter is not None
        return [name for name in ADAPTERS if not stable.adapter.source.endswith(f"/{name}")]

    def another(self) -> str:
        """Return the first of them."""
        return self.others()[0]

    def come_to_rest(self) -> None:
        """Have nothing move: a rollout that an earlier test left is given up, all nodes are there.

        A test that failed then takes no other with it.
        """
        if not self.rollout().phase.is_terminal:
            self.vctl("rollout", "abort")
        self.until(self._is_at_rest)

    def _is_at_rest(self) -> bool:
        read = self.dev.read()
        present = read.present().values()
        rollouts = [service.rollout for service in read.services.values()]
        return (
            len(present) == len(self.dev.nodes)
            and all(report.gateway_ok and report.incarnation for report in present)
            and all(rollout is None or rollout.phase.is_terminal for rollout in rollouts)
        )

    def until(self, holds: Callable[[], bool], *, within_s: float = 30) -> None:
        """Wait until something holds; on failure show the agents' logs."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                if holds():
                    return
            except StoreError:
                pass  # etcd is starting again
            assert time.monotonic() < deadline, f"{self.stand()}\n{self.logs()}"
            time.sleep(0.03)

    def until_phase(self, phase: RolloutPhase, *, within_s: float = 30) -> None:
        self.until(lambda: self.rollout().phase is phase, within_s=within_s)

    def restart_agents(self, *nodes: str) -> None:
        """Start agents again, and wait until it is they who speak for their nodes.

        The record of a killed agent stands until its lease ends: a node that is listed need not be
        there.
        """
        before = {node: record.boot_id for node, record in self.dev.read().records.items()}
        for node in nodes:
            self.dev.restart(node, "agent")
        self.until(lambda: all(self._is_back(node, before.get(node, "")) for node in nodes))

    def _is_back(self, node: str, before: str) -> bool:
        report = self.dev.read().present().get(node)
        return report is not None and report.boot_id != before and report.gateway_ok

    def until_gone(self, node: str) -> None:
        """Wait until nobody counts a node any more, whose agent was killed or stopped."""
        self.until(lambda: node not in self.dev.read().present())

    def stand(self) -> str:
        """Return what `vctl status` says."""
        said = self.vctl("status")
        return said.out + said.err

    def logs(self) -> str:
        return "\n".join(
            f"== {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-25:])
            for file in sorted((self.folder / "logs").glob("*-agent.log"))
        )


@functools.cache
def _models() -> Path:
    """Make the base and the sample adapters once: a process for each spends its time on imports."""
    from vctl_agent.engines.torch.program import make_adapter, make_base

    folder = Path(tempfile.mkdtemp(prefix="vctl-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_base(folder / "base", seed=BASE_SEED)
    for name, seed in ADAPTERS.items():
        make_adapter(folder / "adapters" / name, base=folder / "base", seed=seed, rank=RANK)
    return folder


@contextmanager
def a_fleet(
    folder: Path,
    *,
    nodes: int,
    engine_arguments: tuple[str, ...] = (),
    agent_arguments: tuple[str, ...] = (),
) -> Iterator[Fleet]:
    """Run a fleet that serves nothing yet; its sample adapters are made."""
    options = Options(
        nodes=nodes,
        lease_ttl_s=LEASE_TTL_S,
        engine_arguments=engine_arguments,
        agent_arguments=("--log-level", "debug", *agent_arguments),
    )
    shutil.copytree(_models(), folder / "models")
    with DevFleet(folder, options, env=os.environ) as dev:
        dev.begin()
        dev.wait_ready()
        yield Fleet(dev)


def begin_serving(fleet: Fleet, *components: str) -> None:
    """Make the service, and have the fleet serve its first release."""
    said = fleet.vctl("rollout", "start", "--new-service", *components)
    assert said.code == 0, said


def ask(
    url: str,
    *,
    prompt: str = "Hello",
    max_tokens: int = 4,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> tuple[int, str]:
    """Ask a gateway; return the release that answered and the text.

    Raises:
        AssertionError: It did not answer with 200.
    """
    body = {"model": SERVICE, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
            return int(response.headers["x-vctl-release"]), answer["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.code} {error.read()!r}") from error


@dataclass
class Load:
    """Clients that keep asking every gateway until told to stop."""

    urls: list[str]
    max_tokens: int = 4
    answers: list[tuple[int, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def _keep_asking(self, url: str) -> None:
        while not self._stopping.is_set():
            try:
                self.answers.append(ask(url, max_tokens=self.max_tokens))
            except (AssertionError, OSError) as error:
                self.failures.append(f"{url}: {error}")

    @contextmanager
    def running(self, *, each: int = 2) -> Iterator["Load"]:
        threads = [
            threading.Thread(target=self._keep_asking, args=(url,))
            for url in self.urls
            for _ in range(each)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def wait_for(self, more: int, *, within_s: float = 30) -> None:
        """Wait until *more* further answers have come."""
        wanted, deadline = len(self.answers) + more, time.monotonic() + within_s
        while len(self.answers) < wanted:
            assert time.monotonic() < deadline, self.failures[-3:]
            time.sleep(0.02)
