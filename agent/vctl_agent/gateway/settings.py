"""The gateway's settings.

Settings that agent and gateway of a node share have the same variable, the gateway's own begin with
``VCTL_GATEWAY_``: one environment file serves both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vctl_agent import configuration as read
from vctl_agent.configuration import Address, Option
from vctl_agent.gateway.apikeys import KeysFile, read_keys_file
from vctl_agent.gateway.fleetkey import FleetKey, read_key
from vctl_plans.keys import DEFAULT_PREFIX
from vctl_plans.store.settings import StoreSettings


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
    engine: str = ""  # its address; used until the agent names one
    max_body_bytes: int = 32 * 2**20
    engine_timeout_s: float = 600.0  # without a byte from the engine
    grace_s: float = 600.0
    isolation_s: float = 0.0  # without etcd, after which nothing is served; 0: the last route is
    fleet_key: FleetKey | None = None  # None: hops are off
    api_keys: KeysFile | None = None  # None: clients need no key
    engine_key: str = ""  # what the engine asks for; empty: nothing
    takes_over: bool = False  # the place of the gateway that runs on this state
    has_passthrough: bool = False
    has_access_log: bool = True
    has_session_cookie: bool = False


_RENAMED = {
    "engine_url": "engine",
    "max_body": "max_body_bytes",
    "engine_timeout": "engine_timeout_s",
    "grace": "grace_s",
    "refuse_when_isolated": "isolation_s",
    "fleet_key_file": "fleet_key",
    "api_keys_file": "api_keys",
    "engine_api_key_file": "engine_key",
    "passthrough": "has_passthrough",
    "take_over": "takes_over",
    "access_log": "has_access_log",
    "session_cookie": "has_session_cookie",
}


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings of a command line and an environment.

    Raises:
        SettingsError: All problems, each naming its flag and its variable.
    """
    values, store = read.load(
        _OPTIONS,
        program="vctl-gateway",
        about="Route the requests of a node by release.",
        arguments=arguments,
        environment=environment,
    )
    fields = {_RENAMED.get(name, name): value for name, value in values.items()}
    return Settings(store=store, **fields)


_OPTIONS = (
    Option("fleet", "VCTL_FLEET", None, read.name("fleet"), "the fleet"),
    Option("node", "VCTL_NODE", None, read.name("node"), "this node's name"),
    Option("prefix", "VCTL_PREFIX", DEFAULT_PREFIX, read.key_prefix, "root of vctl's keys in etcd"),
    Option("listen", "VCTL_GATEWAY_LISTEN", "127.0.0.1:8080", read.address,
           "where clients come in"),
    Option("port-file", "VCTL_GATEWAY_PORT_FILE", "", read.optional_path,
           "file to write host:port of --listen to, once clients can connect"),
    Option("admin", "VCTL_GATEWAY_ADMIN", "127.0.0.1:0", read.address,
           "where /livez /readyz /metrics are"),
    Option("admin-port-file", "VCTL_GATEWAY_ADMIN_PORT_FILE", "", read.optional_path,
           "file to write host:port of --admin to"),
    Option("socket", "VCTL_SOCKET", "/run/vctl/gateway.sock", read.socket_path,
           "Unix socket for the agent"),
    Option("state", "VCTL_GATEWAY_STATE", "/var/lib/vctl/gateway", Path,
           "folder that keeps the last route over a restart"),
    Option("engine-url", "VCTL_ENGINE_URL", "", read.url,
           "the engine's address, until the agent names it"),
    Option("max-body", "VCTL_GATEWAY_MAX_BODY", "32MiB", read.size_bytes,
           "largest body of a request"),
    Option("engine-timeout", "VCTL_GATEWAY_ENGINE_TIMEOUT", "10m", read.seconds,
           "time without a byte from the engine before a request is given up"),
    Option("grace", "VCTL_GATEWAY_GRACE", "10m", read.seconds,
           "time that requests have to finish after SIGTERM"),
    Option("refuse-when-isolated", "VCTL_GATEWAY_REFUSE_WHEN_ISOLATED", "0", read.seconds,
           "time without etcd after which requests get 503; 0: the last route is served on"),
    Option("take-over", "VCTL_GATEWAY_TAKE_OVER", "off", read.switch,
           "take the place of the gateway that runs on this --state: it ends its streams"),
    Option("fleet-key-file", "VCTL_FLEET_KEY_FILE", "", read_key,
           "file with the key that the fleet's gateways share, to pass requests to one another"),
    Option("api-keys-file", "VCTL_GATEWAY_API_KEYS_FILE", "", read_keys_file,
           "file of TENANT SHA-256 lines: whose key reaches whose services; none: nobody is asked"),
    # Not the agent's variable: to set that has never let clients in that have no key themselves.
    Option("engine-api-key-file", "VCTL_GATEWAY_ENGINE_API_KEY_FILE", "", read.secret,
           "file with the API key that the engine asks for: sent to it in place of the client's"),
    Option("passthrough", "VCTL_GATEWAY_PASSTHROUGH", "off", read.switch,
           "pass models that are no service on to the engine unchanged"),
    Option("session-cookie", "VCTL_GATEWAY_SESSION_COOKIE", "off", read.switch,
           "give pins as a cookie as well, for clients that keep cookies and no header fields"),
    Option("access-log", "VCTL_GATEWAY_ACCESS_LOG", "on", read.switch,
           "one line a request on stderr"),
)  # fmt: skip
