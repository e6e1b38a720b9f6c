"""The agent's settings: flags, `VCTL_*` variables and one YAML file hold the same."""

import socket
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from vctl_agent import configuration
from vctl_plans.errors import PlanError, SettingsError
from vctl_plans.keys import DEFAULT_PREFIX
from vctl_plans.names import check_name
from vctl_plans.store.settings import StoreSettings

ENGINES = ("torch",)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """vctl's agent: verifies, loads, probes, reports, and may be elected conductor."""

    fleet: Annotated[str, Meta(description="the fleet that this node belongs to")]
    node: Annotated[str, Meta(description="this node's name")] = ""
    state: Annotated[str, Meta(description="directory for artifacts and records")]
    socket: Annotated[str, Meta(description="the gateway's Unix socket")]
    engine_url: Annotated[str, Meta(description="where the engine listens")]
    engine: Annotated[str, Meta(description="the engine's kind: torch")] = "torch"
    gateway_url: Annotated[str, Meta(description="where clients reach the gateway")] = ""
    allowed_root: Annotated[
        tuple[str, ...], Meta(description="a directory that artifacts may be read from")
    ] = ()
    admin: Annotated[str, Meta(description="host:port of /livez /readyz /metrics")] = "127.0.0.1:0"
    admin_port_file: Annotated[str, Meta(description="file to write the admin host:port to")] = ""
    lease_ttl: Annotated[
        float, Meta(description="seconds after which a silent node counts as gone", ge=1)
    ] = 15.0
    conduct: Annotated[bool, Meta(description="stand for election as conductor")] = True
    prefix: Annotated[str, Meta(description="root of all keys in etcd")] = DEFAULT_PREFIX
    log_level: Annotated[str, Meta(description="debug, info, warning or error")] = "info"
    crash_at: Annotated[int, Meta(description="for tests: die right after effect N", ge=0)] = 0
    endpoints: Annotated[tuple[str, ...], Meta(description="etcd; ETCDCTL_* count too")] = ()


def load(argv: Sequence[str], env: Mapping[str, str]) -> tuple[Settings, StoreSettings]:
    """Return the agent's settings and the store's.

    Raises:
        SettingsError: All that is missing or not allowed.
    """
    settings = configuration.load(Settings, program="vctl-agent", argv=argv, env=env)
    settings = msgspec.structs.replace(settings, node=settings.node or _host_name())
    problems = [p for p in (_name_problem(settings.fleet, "fleet"),
                            _name_problem(settings.node, "node")) if p]  # fmt: skip
    if settings.engine not in ENGINES:
        problems.append(f"--engine: {settings.engine!r} is none of {', '.join(ENGINES)}")
    if problems:
        raise SettingsError(problems, hint="see vctl-agent --help")
    if settings.endpoints:
        env = {**env, "VCTL_ENDPOINTS": ",".join(settings.endpoints)}
    return settings, StoreSettings.from_environment(env)


def _host_name() -> str:
    return socket.gethostname().split(".")[0].lower()


def _name_problem(name: str, what: str) -> str:
    try:
        check_name(name, what=what)
    except PlanError as problem:
        return problem.message
    return ""
