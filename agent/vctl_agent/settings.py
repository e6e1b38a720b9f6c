"""The agent's settings."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vctl_agent import configuration as read
from vctl_agent.alerting.webhooks import Webhook, read_webhooks
from vctl_agent.configuration import Address, Option
from vctl_agent.crashpoints import VARIABLE as CRASH_VARIABLE
from vctl_plans.errors import SettingsError
from vctl_plans.keys import DEFAULT_PREFIX
from vctl_plans.sources import TokenFile, token_file
from vctl_plans.store.settings import StoreSettings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the agent; `_OPTIONS` says what they are."""

    fleet: str
    node: str
    state: Path
    socket: Path
    engine: str
    engine_url: str
    engine_key_file: Path | None
    engine_max_adapters: int  # 0: as many as the engine tells
    engine_restart_hook: tuple[str, ...]  # the program and its arguments; empty: none
    engine_restart_timeout: float  # seconds
    label: tuple[tuple[str, str], ...]
    gateway_url: str
    gateway: str  # "local", or "none": then the node serves only services in direct mode
    allowed_root: tuple[Path, ...]
    allowed_source: tuple[str, ...]  # prefixes of URIs; none: any source
    source_token_file: tuple[TokenFile, ...]
    admin: Address
    admin_port_file: Path | None
    lease_ttl: float  # seconds
    conduct: bool
    webhooks: tuple[Webhook, ...]
    prometheus_url: str
    prometheus_token_file: Path | None
    engine_admin_key_file: Path | None
    engine_hook: tuple[str, ...]  # the program and its arguments, or one address; empty: none
    engine_hook_timeout: float  # seconds
    hook: tuple[str, ...]  # the program and its arguments, or one address; empty: none
    hook_timeout: float  # seconds
    hook_token_file: Path | None
    scrub_interval: float  # seconds; 0: never
    keep_artifacts: int  # of each service's newest releases
    artifact_space: int  # bytes; 0: what the disk has
    prefix: str
    log_level: str
    crash_at: int
    store: StoreSettings


class ConductorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of an agent that only conducts."""

    fleet: str
    node: str  # its name in the election and in logs; no node is called so
    admin: Address
    admin_port_file: Path | None
    lease_ttl: float  # seconds
    webhooks: tuple[Webhook, ...]
    prometheus_url: str
    prometheus_token_file: Path | None
    prefix: str
    log_level: str
    crash_at: int
    store: StoreSettings


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings of a command line and an environment.

    Raises:
        SettingsError: All problems, each naming its flag and its variable.
    """
    values, store = _load(_OPTIONS, arguments, environment)
    values.pop(_CONDUCTOR_ONLY.field)
    settings = Settings(store=store, **values)
    if (settings.engine == "hook") != bool(settings.engine_hook):
        problem = "--engine-hook (VCTL_ENGINE_HOOK): is for --engine hook, which needs it"
        raise SettingsError([problem], hint="vctl-agent --help lists all settings")
    return settings


def read_conductor_settings(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> ConductorSettings | None:
    """Return the settings of an agent that only conducts; None: it is a node's.

    Raises:
        SettingsError: All problems; a setting of a node is one.
    """
    if not read.is_on(_CONDUCTOR_ONLY, _OPTIONS, arguments=arguments, environment=environment):
        return None
    own = ConductorSettings.__struct_fields__
    options = [_of_a_conductor(option) for option in _OPTIONS]
    values, store = _load(options, arguments, environment)
    return ConductorSettings(store=store, **{n: values[n] for n in own if n in values})


def _load(
    options: Sequence[Option], arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, Any], StoreSettings]:
    return read.load(
        options,
        program="vctl-agent",
        about="Verify, load, probe and report on a node; conduct rollouts when elected.",
        arguments=arguments,
        environment=environment,
    )


def _of_a_conductor(option: Option) -> Option:
    """Return the option as an agent that only conducts has it."""
    known = {*ConductorSettings.__struct_fields__, _CONDUCTOR_ONLY.field}
    if option.field in known:
        return option
    return read.senseless(option, "with --conductor-only: there is no node")


def _host_name() -> str:
    return socket.gethostname().split(".")[0].lower()


_CONDUCTOR_ONLY = Option(
    "conductor-only", "VCTL_CONDUCTOR_ONLY", "off", read.switch,
    "only stand for election and conduct: no node, no engine, no gateway, no state",
)  # fmt: skip

_OPTIONS = (
    Option("fleet", "VCTL_FLEET", None, read.name("fleet"), "the fleet"),
    Option("node", "VCTL_NODE", _host_name(), read.name("node"), "this node's name"),
    Option("state", "VCTL_STATE", "/var/lib/vctl/agent", Path, "folder of artifacts and records"),
    Option("socket", "VCTL_SOCKET", "/run/vctl/gateway.sock", read.socket_path,
           "the gateway's Unix socket"),
    Option("engine", "VCTL_ENGINE", "torch", read.one_of("torch", "vllm", "sglang", "hook"),
           "the engine's kind"),
    Option("engine-url", "VCTL_ENGINE_URL", None, read.url, "the engine's address"),
    Option("engine-key-file", "VCTL_ENGINE_KEY_FILE", "", read.optional_path,
           "file with the API key that the engine asks for"),
    Option("engine-admin-key-file", "VCTL_ENGINE_ADMIN_KEY_FILE", "", read.optional_path,
           "file with the key for its administration, where SGLang has one of its own for that"),
    Option("engine-hook", "VCTL_ENGINE_HOOK", "", read.command,
           "with --engine hook: command or address that is asked for all that an engine does"),
    Option("engine-hook-timeout", "VCTL_ENGINE_HOOK_TIMEOUT", "2m", read.at_least_one_second,
           "time that it has for a change"),
    Option("engine-max-adapters", "VCTL_ENGINE_MAX_ADAPTERS", "0", read.whole_number,
           "adapters that the engine serves side by side, where it does not tell; 0: as it tells"),
    Option("engine-restart-hook", "VCTL_ENGINE_RESTART_HOOK", "", read.command,
           "command that restarts an engine which must serve nothing any more; told on stdin why"),
    Option("engine-restart-timeout", "VCTL_ENGINE_RESTART_TIMEOUT", "5m", read.at_least_one_second,
           "time after which that command is killed"),
    Option("label", "VCTL_LABELS", "", read.label,
           "NAME=VALUE that vctl nodes shows, as in rack=7; may be repeated", is_many=True),
    Option("gateway-url", "VCTL_GATEWAY_URL", "", read.url,
           "where clients and peers reach the gateway; empty: only from its own host"),
    Option("gateway", "VCTL_GATEWAY", "local", read.one_of("local", "none"),
           "whether this node has a gateway; none: only services in direct mode are served"),
    Option("allowed-root", "VCTL_ALLOWED_ROOT", "", Path,
           "a folder that artifacts may be read from; may be repeated", is_many=True),
    Option("allowed-source", "VCTL_ALLOWED_SOURCE", "", read.source_prefix,
           "what sources other than file:// must lie below, as in s3://models/; may be repeated;"
           " none: anywhere", is_many=True),
    Option("source-token-file", "VCTL_SOURCE_TOKEN_FILE", "", token_file,
           "PREFIX=FILE: a bearer token for sources below https://models.example/; may be repeated",
           is_many=True),
    Option("admin", "VCTL_AGENT_ADMIN", "127.0.0.1:0", read.address,
           "where /livez /readyz /metrics are"),
    Option("admin-port-file", "VCTL_AGENT_ADMIN_PORT_FILE", "", read.optional_path,
           "file to write host:port of --admin to"),
    Option("lease-ttl", "VCTL_LEASE_TTL", "15s", read.at_least_one_second,
           "time after which a silent node counts as gone"),
    Option("conduct", "VCTL_CONDUCT", "on", read.switch, "stand for election as conductor"),
    _CONDUCTOR_ONLY,
    Option("webhooks", "VCTL_WEBHOOKS", "", read_webhooks,
           "file with the webhooks that alerts go to while conductor; none: alerts are logged"),
    Option("prometheus-url", "VCTL_PROMETHEUS_URL", "", read.url,
           "where the queries of guardrails are answered, up to /api/v1; used while conductor"),
    Option("prometheus-token-file", "VCTL_PROMETHEUS_TOKEN_FILE", "", read.optional_path,
           "file with a bearer token for it, read at each query"),
    Option("hook", "VCTL_HOOK", "", read.command,
           "command or address told when a prompt or an index is here, and after it was unloaded"),
    Option("hook-timeout", "VCTL_HOOK_TIMEOUT", "60s", read.at_least_one_second,
           "time after which the hook is killed"),
    Option("hook-token-file", "VCTL_HOOK_TOKEN_FILE", "", read.optional_path,
           "file with a bearer token for hooks that are addresses, read at each call"),
    Option("scrub-interval", "VCTL_SCRUB_INTERVAL", "6h", read.seconds,
           "time in which every staged artifact is hashed again, in the background; 0: never"),
    Option("keep-artifacts", "VCTL_KEEP_ARTIFACTS", "3", read.whole_number,
           "how many of each service's newest releases stay on disk though nothing needs them"),
    Option("artifact-space", "VCTL_ARTIFACT_SPACE", "", read.optional_size,
           "what artifacts may take, as in 500GiB; empty: what the disk has"),
    Option("prefix", "VCTL_PREFIX", DEFAULT_PREFIX, read.key_prefix, "root of vctl's keys in etcd"),
    Option("log-level", "VCTL_LOG_LEVEL", "info", read.log_level, "the lowest level to log"),
    Option("crash-at", CRASH_VARIABLE, "0", read.whole_number,
           "for tests: die right after effect N; 0: never"),
)  # fmt: skip
