"""The five steps, each with a real `vctl` as a process of its own."""

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vctl_cli.demo.clients import Clients
from vctl_cli.demo.oracle import Oracle
from vctl_cli.demo.tally import Answer, Count, Said, count, last_switch_s
from vctl_cli.dev import DevFleet
from vctl_cli.dev.layout import clean
from vctl_cli.programs import command_of
from vctl_cli.render.screen import Screen
from vctl_plans.phase import NodePhase

SERVICE = "support"
SEEDS = {"v1": 101, "v2": 102, "v3": 103, "v4": 104}
ALLOWED = {1: "v1", 2: "v2", 4: "v4"}  # release 3 must never be served
SERVING_S = 1.5
"""How long clients ask between two steps, at least."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo measured."""

    nodes: int
    count: Count
    rollout_ms: float  # from the start of `rollout start` to the end of its process: converged
    rollback_ms: float  # from the start of `rollback --now` to the last node switched
    rollback_command_ms: float  # ... to the end of its process: all nodes confirmed
    seconds: float
    surprises: tuple[str, ...]  # what went otherwise than the story says

    @property
    def is_clean(self) -> bool:
        """Whether the demo shows what it claims."""
        return self.count.is_clean and not self.surprises


class Story:
    """Tells and measures.

    Args:
        fleet: Not started yet.
        screen: Where the story goes.
        env: The environment of the processes.
        is_silent: Whether stdout is kept for figures: then all is told on stderr.
    """

    def __init__(
        self, fleet: DevFleet, screen: Screen, *, env: Mapping[str, str], is_silent: bool
    ) -> None:
        self._fleet = fleet
        self._env = dict(env)
        self._stdout = screen.err if is_silent else screen.out
        self._surprises: list[str] = []

    def tell(self) -> Figures:
        """Tell the whole story.

        Raises:
            VctlError: The fleet could not be started.
        """
        begun_s = time.monotonic()
        right = self._set_up()
        self._step(1, f"{len(self._fleet.nodes)} nodes serve release 1")
        self._vctl("rollout", "start", "--new-service", "--adapter", self._adapter("v1"))
        with Clients(SERVICE, self._fleet.gateway_urls) as clients:
            self._serve(clients)
            rollout_ms = self._roll_out(clients)
            self._refuse_a_flipped_bit(clients)
            switched_ms, command_ms = self._roll_back(clients, right)
        counted = count(clients.answers, right)
        if set(counted.by_release) - set(right):
            self._surprises.append(f"releases served: {sorted(counted.by_release)}")
        return Figures(
            nodes=len(self._fleet.nodes),
            count=counted,
            rollout_ms=rollout_ms,
            rollback_ms=switched_ms,
            rollback_command_ms=command_ms,
            seconds=time.monotonic() - begun_s,
            surprises=tuple(self._surprises),
        )

    def _set_up(self) -> dict[int, tuple[Said, ...]]:
        """Start the fleet; meanwhile make the adapters and work out what is right."""
        fleet = self._fleet
        self._say("a base model, four adapters, etcd and the nodes are made ready ...")
        fleet.begin()
        fleet.models.make_adapters(SEEDS)
        adapters = {name: fleet.models.adapter(name) for name in ALLOWED.values()}
        oracle = Oracle(fleet.models.base, adapters, folder=fleet.folder, env=clean(self._env))
        try:
            fleet.wait_ready()
            right = oracle.results()
        finally:
            oracle.stop()
        return {number: right[name] for number, name in ALLOWED.items()}

    def _roll_out(self, clients: Clients) -> float:
        self._step(2, "release 2 rolls out while clients keep asking")
        began_s = time.monotonic()
        self._vctl("rollout", "start", "--adapter", self._adapter("v2"))
        rollout_ms = (time.monotonic() - began_s) * 1000
        self._serve(clients)
        return rollout_ms

    def _refuse_a_flipped_bit(self, clients: Clients) -> None:
        self._step(3, "release 3 has one flipped bit in its safetensors")
        self._vctl("release", "create", SERVICE, "--adapter", self._adapter("v3"))
        place, bit = flip_a_bit(self._fleet.models.adapter("v3"))
        self._say(f"(bit {bit} of byte {place} is flipped on disk, after the release was made)")
        before = self._route_revision()
        self._vctl("rollout", "start", "--release", "3", expected=1)
        self._say("exit code 1")
        refused = self._refusals()
        moved = "no traffic moved" if self._route_revision() == before else "TRAFFIC MOVED"
        self._say(f"refused by {len(refused)} of {len(self._fleet.nodes)} nodes; {moved}")
        if len(refused) < len(self._fleet.nodes) or moved != "no traffic moved":
            self._surprises.append(f"release 3: refused by {sorted(refused)}, {moved}")
        self._serve(clients)

    def _roll_back(
        self, clients: Clients, right: Mapping[int, Sequence[Said]]
    ) -> tuple[float, float]:
        self._step(4, "release 4 is intact, but its answers are not what was wanted")
        self._vctl("rollout", "start", "--adapter", self._adapter("v4"))
        self._serve(clients)
        self._say(f"wanted: {right[2][0].text!r}, it says: {right[4][0].text!r}. Back, now:")
        began_s = time.monotonic()
        self._vctl("rollback", "--now", "--reason", "answers are not what was wanted")
        command_ms = (time.monotonic() - began_s) * 1000
        self._serve(clients)
        switched_s = last_switch_s(clients.answers, since_s=began_s, left=4)
        if switched_s is None:
            self._surprises.append("some node was not asked after the rollback")
        return ((switched_s or began_s) - began_s) * 1000, command_ms

    def _serve(self, clients: Clients) -> None:
        """Let clients ask for a while, and on every node at least a few times."""
        since_s = time.monotonic()

        def all_nodes_answered(answers: Sequence[Answer]) -> bool:
            asked = [answer.node for answer in answers if answer.begun_s > since_s]
            return all(asked.count(node) >= 3 for node in self._fleet.nodes)  # noqa: PLR2004

        time.sleep(SERVING_S)
        clients.wait_for(all_nodes_answered, within_s=10.0)

    def _route_revision(self) -> int:
        return self._fleet.read().services[SERVICE].route_revision

    def _refusals(self) -> set[str]:
        """Return the nodes that refused release 3; a report may take a moment."""
        refused: set[str] = set()
        deadline = time.monotonic() + 3.0
        while len(refused) < len(self._fleet.nodes) and time.monotonic() < deadline:
            for node, report in self._fleet.read().present().items():
                said = report.release(SERVICE, 3)
                if said and said.phase is NodePhase.FAILED:
                    refused.add(node)
            time.sleep(0.05)
        return refused

    def _vctl(self, *arguments: str, expected: int = 0) -> None:
        """Run vctl as a user would, its output shown."""
        self._say(f"$ vctl {shlex.join(arguments)}")
        env = clean(self._env) | self._fleet.environment | {"VCTL_SERVICE": SERVICE}
        command = [command_of("vctl"), *arguments]
        code = subprocess.run(  # noqa: S603  our own program
            command, env=env, stdin=subprocess.DEVNULL, stdout=self._stdout, check=False
        ).returncode
        if code != expected:
            self._surprises.append(f"vctl {arguments[0]} ended with {code}, not {expected}")

    def _adapter(self, name: str) -> str:
        return str(self._fleet.models.adapter(name))

    def _step(self, number: int, text: str) -> None:
        self._say(f"\n{number}. {text}")

    def _say(self, text: str) -> None:
        self._stdout.write(f"{text}\n")
        self._stdout.flush()


def flip_a_bit(adapter: Path) -> tuple[int, int]:
    """Flip one bit in the middle of an adapter's weights; return its byte and bit."""
    path = adapter / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    place, bit = len(content) * 3 // 4, 3
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return place, bit
