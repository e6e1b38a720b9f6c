"""The programs of a development fleet: their commands, ports, folders and logs."""

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vctl_cli.dev.ports import HOST, Ports
from vctl_cli.dev.program import Program
from vctl_cli.programs import command_of, etcd_command

MAX_SOCKET_BYTES = 100
"""A Unix socket's path has at most 107 bytes on Linux."""

ENGINE_NICENESS = 10
"""Engines on one machine take all processors; elsewhere they have their own, and no agent, gateway
or command waits for them."""

_OWN_VARIABLES = ("VCTL_", "ETCDCTL_", "ETCD_")


@dataclass(frozen=True)
class Options:
    """What a caller may change; tests make leases short, or an engine slow."""

    nodes: int = 4
    fleet: str = "dev"
    base_port: int = 0  # 0: any that are free
    lease_ttl_s: float = 15.0
    engine_arguments: Sequence[str] = ()
    agent_arguments: Sequence[str] = ()
    agent_env: Mapping[str, str] | None = None
    engine_urls: Sequence[str] = ()  # engines that run already, one a node; none: our own


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without the variables that would point our programs at another fleet."""
    return {name: value for name, value in env.items() if not name.startswith(_OWN_VARIABLES)}


class Layout:
    """Where everything of one fleet is, and how each program is started.

    Args:
        folder: All of the fleet's state.
        base_model: What the engines serve.
        options: The fleet's size and settings.
        ports: Where ports come from.
        env: The environment that the programs inherit.
    """

    def __init__(
        self,
        folder: Path,
        base_model: Path,
        options: Options,
        *,
        ports: Ports,
        env: Mapping[str, str],
    ) -> None:
        self.folder = folder
        self.options = options
        self.nodes = tuple(f"n{n}" for n in range(1, options.nodes + 1))
        self._base_model = base_model
        self._env = clean(env)
        self._etcd_port, self._peer_port = ports.take(), ports.take()
        self._ports = {
            node: {part: ports.take() for part in ("engine", "gateway", "gateway-admin", "agent")}
            for node in self.nodes
        }
        self._sockets = _socket_folder(folder)

    @property
    def endpoint(self) -> str:
        """Where etcd is."""
        return f"http://{HOST}:{self._etcd_port}"

    def url(self, node: str, part: str) -> str:
        """Return where a node's ``gateway``, ``engine``, ``gateway-admin`` or ``agent`` answers."""
        return f"http://{self.address(node, part)}"

    def engine_url(self, node: str) -> str:
        """Return where a node's engine answers, whoever started it."""
        if self.options.engine_urls:
            return self.options.engine_urls[self.nodes.index(node)]
        return self.url(node, "engine")

    def address(self, node: str, part: str) -> str:
        """Return the host and port of a part of a node."""
        return f"{HOST}:{self._ports[node][part]}"

    def etcd(self) -> Program:
        """Return the fleet's etcd, of one member."""
        peer = f"http://{HOST}:{self._peer_port}"
        options = {
            "--data-dir": str(self.folder / "etcd"),
            "--listen-client-urls": self.endpoint,
            "--advertise-client-urls": self.endpoint,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"default={peer}",
        }
        return self._program("etcd", [etcd_command(), *_flat(options)])

    def engine(self, node: str) -> Program:
        """Return a node's engine."""
        options = {"--base": str(self._base_model), "--port": str(self._ports[node]["engine"])}
        command = [command_of("vctl-engine"), "serve", *_flat(options)]
        command += self.options.engine_arguments
        return self._program(f"{node}/engine", command, niceness=ENGINE_NICENESS)

    def gateway(self, node: str) -> Program:
        """Return a node's gateway."""
        options = self._common(node) | {
            "--listen": self.address(node, "gateway"),
            "--admin": self.address(node, "gateway-admin"),
            "--state": str(self._state(node, "gateway")),
            "--engine-url": self.engine_url(node),
            "--fleet-key-file": str(self._fleet_key()),
            "--grace": "5s",
        }
        return self._program(f"{node}/gateway", [command_of("vctl-gateway"), *_flat(options)])

    def agent(self, node: str, allowed_roots: Sequence[Path]) -> Program:
        """Return a node's agent; it reads artifacts from *allowed_roots* only."""
        options = self._common(node) | {
            "--state": str(self._state(node, "agent")),
            "--engine-url": self.engine_url(node),
            "--gateway-url": self.url(node, "gateway"),
            "--admin": self.address(node, "agent"),
            "--lease-ttl": f"{self.options.lease_ttl_s:g}",
        }
        allowed = [part for root in allowed_roots for part in ("--allowed-root", str(root))]
        command = [command_of("vctl-agent"), *_flat(options), *allowed]
        return self._program(
            f"{node}/agent",
            [*command, *self.options.agent_arguments],
            more_env=self.options.agent_env or {},
        )

    def _common(self, node: str) -> dict[str, str]:
        return {
            "--fleet": self.options.fleet,
            "--node": node,
            "--endpoints": self.endpoint,
            "--socket": str(self._sockets / f"{node}.sock"),
        }

    def _fleet_key(self) -> Path:
        """Return the file of the key that the gateways share; made once, for us alone to read."""
        path = self.folder / "fleet-key"
        path.touch(mode=0o600)
        if not path.stat().st_size:
            path.write_text(f"{secrets.token_hex(32)}\n")
        return path

    def _state(self, node: str, part: str) -> Path:
        state = self.folder / "nodes" / node / part
        state.mkdir(parents=True, exist_ok=True)
        return state

    def _program(
        self,
        name: str,
        command: Sequence[str],
        *,
        more_env: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> Program:
        log = self.folder / "logs" / f"{name.replace('/', '-')}.log"
        env = self._env | dict(more_env or {})
        return Program(name, command, env=env, log=log, niceness=niceness)


def _flat(options: Mapping[str, str]) -> list[str]:
    return [part for pair in options.items() for part in pair]


def _socket_folder(folder: Path) -> Path:
    """Return where Unix sockets go: with the rest, unless their paths would be too long."""
    near = folder / "sockets"
    if len(str(near / "n9999.sock")) <= MAX_SOCKET_BYTES:
        near.mkdir(parents=True, exist_ok=True)
        return near
    return Path(tempfile.mkdtemp(prefix="vctl-"))
