"""The gateway's settings: each is a flag and a variable, and all problems are reported at once.

A flag wins over its variable. Settings that agent and gateway of a node share have the same
variable (``VCTL_FLEET``, ``VCTL_NODE``, ``VCTL_ENDPOINTS``, ``VCTL_SOCKET``, ``VCTL_ENGINE``), the
gateway's own begin with ``VCTL_GATEWAY_``. Passwords and certificates of etcd are variables only.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from vctl_agent.gateway.agentlink import MAX_PATH_BYTES
from vctl_plans.errors import PlanError, SettingsError
from vctl_plans.keys import DEFAULT_PREFIX
from vctl_plans.names import check_name
from vctl_plans.store.settings import StoreSettings

_SIZE = re.compile(r"([0-9]+)\s*(|B|KiB|MiB|GiB)")
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(|ms|s|m|h)")
_DURATION_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_MAX_PORT = 65535


class Address(msgspec.Struct, frozen=True):
    """Where to listen; port 0: any that is free."""

    host: str
    port: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the gateway."""

    fleet: str
    node: str
    listen: Address
    admin: Address
    socket: Path
    state: Path
    store: StoreSettings = StoreSettings()
    prefix: str = DEFAULT_PREFIX
    port_file: Path | None = None
    admin_port_file: Path | None = None
    engine: str = ""  # used until the agent names one
    max_body_bytes: int = 32 * 2**20
    engine_timeout_s: float = 600.0  # without a byte from the engine
    grace_s: float = 600.0
    has_passthrough: bool = False
    has_access_log: bool = True


class _Option(msgspec.Struct, frozen=True):
    """One setting as flag and variable."""

    flag: str
    variable: str
    default: str | None  # None: required
    read: Callable[[str], Any]  # raises ValueError with a message for a person
    help: str

    @property
    def field(self) -> str:
        return self.flag.replace("-", "_")


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings of a command line and an environment.

    Raises:
        SettingsError: All problems, each naming its flag and its variable.
    """
    parsed, unknown = _parser().parse_known_args(list(arguments))
    problems = [f"unknown argument {argument}" for argument in unknown]
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        given = getattr(parsed, option.field)
        text = environment.get(option.variable, option.default) if given is None else given
        where = f"--{option.flag} ({option.variable})"
        if text is None:
            problems.append(f"{where}: is required")
            continue
        try:
            values[option.field] = option.read(text)
        except (ValueError, PlanError) as cause:
            problems.append(f"{where}: {cause}")
    store = _read_store(parsed.endpoints, environment, problems)
    if problems or store is None:
        raise SettingsError(problems, hint="vctl-gateway --help lists all settings")
    return _settings(values, store)


def _settings(values: dict[str, Any], store: StoreSettings) -> Settings:
    renamed = {
        "max_body": "max_body_bytes",
        "engine_timeout": "engine_timeout_s",
        "grace": "grace_s",
        "passthrough": "has_passthrough",
        "access_log": "has_access_log",
    }
    fields = {renamed.get(name, name): value for name, value in values.items()}
    return Settings(store=store, **fields)


def _read_store(
    endpoints: str | None, environment: Mapping[str, str], problems: list[str]
) -> StoreSettings | None:
    given = {} if endpoints is None else {"VCTL_ENDPOINTS": endpoints}
    try:
        return StoreSettings.from_environment({**environment, **given})
    except SettingsError as cause:
        problems.extend(cause.problems)
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vctl-gateway",
        description="Route the requests of a node by release. Each flag is also a variable.",
        allow_abbrev=False,
    )
    for option in _OPTIONS:
        default = "" if not option.default else f"; default {option.default}"
        required = "; required" if option.default is None else ""
        text = f"{option.help} ({option.variable}{default}{required})"
        # A switch may stand alone: --passthrough is --passthrough on.
        switch = {"nargs": "?", "const": "on"} if option.read is _switch else {}
        parser.add_argument(f"--{option.flag}", help=text.replace("%", "%%"), **switch)  # type: ignore[arg-type]
    parser.add_argument(
        "--endpoints",
        help="etcd's addresses, with commas"
        " (VCTL_ENDPOINTS, ETCDCTL_ENDPOINTS; default http://127.0.0.1:2379)",
    )
    return parser


def _name(what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        return check_name(text, what=what)

    return read


def _address(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is not host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _socket(text: str) -> Path:
    path = Path(text)
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ValueError(f"a Unix socket's path has at most {MAX_PATH_BYTES} bytes")
    return path


def _optional_path(text: str) -> Path | None:
    return Path(text) if text else None


def _prefix(text: str) -> str:
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError("must begin, and not end, with a slash")
    return text


def _engine(text: str) -> str:
    if text and (urlsplit(text).scheme not in {"http", "https"} or not urlsplit(text).hostname):
        raise ValueError(f"{text!r} is not an address like http://127.0.0.1:8000")
    return text


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match or not int(match[1]):
        raise ValueError(f"{text!r} is not a size like 32MiB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def _duration_s(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a time like 30s or 10m")
    return float(match[1]) * _DURATION_UNITS_S[match[2]]


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(f"{text!r} is neither on nor off")
    return _SWITCH[text.lower()]


_OPTIONS = (
    _Option("fleet", "VCTL_FLEET", None, _name("fleet"), "the fleet"),
    _Option("node", "VCTL_NODE", None, _name("node"), "this node's name"),
    _Option("prefix", "VCTL_PREFIX", DEFAULT_PREFIX, _prefix, "root of vctl's keys in etcd"),
    _Option("listen", "VCTL_GATEWAY_LISTEN", "127.0.0.1:8080", _address, "where clients come in"),
    _Option(
        "port-file",
        "VCTL_GATEWAY_PORT_FILE",
        "",
        _optional_path,
        "file to write host:port of --listen to, once clients can connect",
    ),
    _Option(
        "admin", "VCTL_GATEWAY_ADMIN", "127.0.0.1:0", _address, "where /livez /readyz /metrics are"
    ),
    _Option(
        "admin-port-file",
        "VCTL_GATEWAY_ADMIN_PORT_FILE",
        "",
        _optional_path,
        "file to write host:port of --admin to",
    ),
    _Option(
        "socket", "VCTL_SOCKET", "/run/vctl/gateway.sock", _socket, "Unix socket for the agent"
    ),
    _Option(
        "state",
        "VCTL_GATEWAY_STATE",
        "/var/lib/vctl/gateway",
        Path,
        "folder that keeps the last route over a restart",
    ),
    _Option("engine", "VCTL_ENGINE", "", _engine, "the engine's address, until the agent names it"),
    _Option("max-body", "VCTL_GATEWAY_MAX_BODY", "32MiB", _size, "largest body of a request"),
    _Option(
        "engine-timeout",
        "VCTL_GATEWAY_ENGINE_TIMEOUT",
        "10m",
        _duration_s,
        "time without a byte from the engine before a request is given up",
    ),
    _Option(
        "grace",
        "VCTL_GATEWAY_GRACE",
        "10m",
        _duration_s,
        "time that requests have to finish after SIGTERM",
    ),
    _Option(
        "passthrough",
        "VCTL_GATEWAY_PASSTHROUGH",
        "off",
        _switch,
        "pass models that are no service on to the engine unchanged",
    ),
    _Option("access-log", "VCTL_GATEWAY_ACCESS_LOG", "on", _switch, "one line a request on stderr"),
)
