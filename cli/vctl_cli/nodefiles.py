"""The files with which a node runs vctl: settings of agent and gateway, variables, systemd units.

A setting that was not given stands there as a comment, with its default: so a file tells what there
is to set. A test holds the names and defaults to the programs' own tables.
"""

from collections.abc import Iterable

import msgspec

AGENT, GATEWAY, VARIABLES = "agent.yaml", "gateway.yaml", "vctl.env"
AGENT_UNIT, GATEWAY_UNIT = "vctl-agent.service", "vctl-gateway.service"

ENGINE_URLS = {
    "vllm": "http://127.0.0.1:8000",
    "sglang": "http://127.0.0.1:30000",
    "torch": "http://127.0.0.1:8000",
    "hook": "http://127.0.0.1:8000",
}
"""Where each kind of engine listens unless told otherwise."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the node; empty: as the program has it."""

    fleet: str
    node: str
    engine: str
    engine_url: str
    endpoints: str
    listen: str = "127.0.0.1:8080"
    gateway_url: str = ""
    fleet_key_file: str = ""
    allowed_roots: tuple[str, ...] = ()
    conducts: bool = True
    folder: str = "/etc/vctl"  # where the files will be
    programs: str = "/usr/local/bin"  # where vctl-agent and vctl-gateway are
    user: str = "vctl"


class Setting(msgspec.Struct, frozen=True):
    """One line of a file: its name, its value or default, and a word on it."""

    name: str
    value: str
    about: str
    is_set: bool = False


def files(wishes: Wishes) -> dict[str, str]:
    """Return the content of each file by its name."""
    return {
        AGENT: _yaml("vctl-agent", wishes.node, agent_settings(wishes)),
        GATEWAY: _yaml("vctl-gateway", wishes.node, gateway_settings(wishes)),
        VARIABLES: _variables(wishes),
        AGENT_UNIT: _unit(wishes, "agent", AGENT, more=_AGENT_LINES),
        GATEWAY_UNIT: _unit(wishes, "gateway", GATEWAY, more=_GATEWAY_LINES),
    }


def _yaml(program: str, node: str, settings: Iterable[Setting]) -> str:
    head = [
        f"# {program} on node {node}. Every setting is also a flag and a variable, which win over",
        f"# this file: {program} --help. Passwords and certificates of etcd stand in {VARIABLES}.",
    ]
    return "\n".join([*head, *(line for each in settings for line in _lines(each)), ""])


def _lines(setting: Setting) -> list[str]:
    mark = "" if setting.is_set else "#"
    return ["", f"# {setting.about}", f"{mark}{setting.name}: {setting.value}".rstrip()]


def _given(name: str, value: str, about: str) -> Setting:
    return Setting(name, _quoted(value), about, is_set=True)


def _perhaps(name: str, value: str, about: str, *, default: str = "") -> Setting:
    """Return a setting that is set where it has a value of its own."""
    is_set = bool(value) and value != default
    return Setting(name, _quoted(value or default), about, is_set=is_set)


def _quoted(value: str) -> str:
    """Return a value as YAML reads it back as the same text."""
    plain = value.replace("_", "").replace("-", "").replace("/", "").replace(".", "")
    is_plain = plain.replace(":", "").isalnum() and not plain[:1].isdigit()
    is_word = value.lower() in {"on", "off", "yes", "no", "true", "false", "null", "none"}
    return value if not value or (is_plain and not is_word) else f'"{value}"'


def agent_settings(wishes: Wishes) -> list[Setting]:
    """Return the agent's settings."""
    listed = "[" + ", ".join(f'"{root}"' for root in wishes.allowed_roots) + "]"
    return [
        _given("fleet", wishes.fleet, "The fleet: the nodes that share one base model."),
        _given("node", wishes.node, "This node's name, which no other has."),
        _given("engine", wishes.engine, "The engine's kind: vllm, sglang, torch or hook."),
        _given("engine_url", wishes.engine_url, "Where the engine is; it listens on loopback."),
        _perhaps(
            "gateway_url",
            wishes.gateway_url,
            "Where clients and peers reach this node's gateway; empty: only from this host.",
        ),
        Setting(
            "allowed_root",
            listed if wishes.allowed_roots else "[/models]",
            "Folders that artifacts may be read from.",
            is_set=bool(wishes.allowed_roots),
        ),
        Setting("allowed_source", "[s3://models/]", "What other sources must lie below."),
        Setting("label", "[rack=7]", "What vctl nodes shows beside the node."),
        Setting(
            "conduct",
            "on" if wishes.conducts else "off",
            "Stand for election; off above 50 nodes, or where etcd has a user for each node.",
            is_set=not wishes.conducts,
        ),
        Setting("state", "/var/lib/vctl/agent", "Artifacts and records."),
        Setting("socket", "/run/vctl/gateway.sock", "Where agent and gateway talk."),
        Setting("keep_artifacts", "3", "Newest releases of each service that stay on disk."),
        Setting(
            "artifact_space", "500GiB", "What artifacts may take. [default: what the disk has]"
        ),
        Setting("scrub_interval", "6h", "Time in which each artifact is hashed again; 0: never."),
        Setting("lease_ttl", "15s", "Time after which a silent node counts as gone."),
        Setting("admin", '"127.0.0.1:0"', "Where /livez /readyz /metrics are; port 0: any."),
        Setting("log_level", "info", "debug, info, warning or error."),
    ]


def gateway_settings(wishes: Wishes) -> list[Setting]:
    """Return the gateway's settings."""
    return [
        _given("fleet", wishes.fleet, "The fleet, as the agent has it."),
        _given("node", wishes.node, "This node's name, as the agent has it."),
        _given("listen", wishes.listen, "Where clients come in."),
        _given("engine_url", wishes.engine_url, "The engine, until the agent names it."),
        _perhaps(
            "fleet_key_file",
            wishes.fleet_key_file,
            "The key that the fleet's gateways share, to pass requests on: openssl rand -hex 32.",
            default="/etc/vctl/fleet-key",
        ),
        Setting("state", "/var/lib/vctl/gateway", "Keeps the last route over a restart."),
        Setting("socket", "/run/vctl/gateway.sock", "Where agent and gateway talk."),
        Setting("passthrough", "off", "Pass models that are no service on to the engine."),
        Setting("refuse_when_isolated", "0", "Time without etcd after which requests get 503."),
        Setting("grace", "10m", "Time that requests have to finish when it is ended."),
        Setting("admin", '"127.0.0.1:0"', "Where /livez /readyz /metrics are; port 0: any."),
        Setting("access_log", "on", "One line a request on stderr."),
    ]


def _variables(wishes: Wishes) -> str:
    return f"""\
# How vctl-agent and vctl-gateway reach etcd. It may hold a password: keep it to root and vctl.
VCTL_ENDPOINTS={wishes.endpoints}

# The authority of etcd's certificate, and a certificate of one's own.
#VCTL_CACERT={wishes.folder}/etcd-ca.pem
#VCTL_CERT={wishes.folder}/node.pem
#VCTL_KEY={wishes.folder}/node.key

# Or the node's own user, as vctl config init-auth makes it; the agent then has conduct: off.
#VCTL_USER=vctl-{wishes.fleet}-node-{wishes.node}:PASSWORD
"""


_AGENT_LINES = (
    "After=vctl-gateway.service",
    "StateDirectory=vctl/agent",
    "# Its gateway serves on while it is away.",
    "TimeoutStopSec=30s",
)
_GATEWAY_LINES = (
    "",
    "StateDirectory=vctl/gateway",
    "# Streams end in their own time: more than the gateway's grace.",
    "TimeoutStopSec=11min",
)


def _unit(wishes: Wishes, part: str, settings: str, *, more: tuple[str, ...]) -> str:
    order, state, why, stop = more
    after = f"\n{order}" if order else ""
    return f"""\
[Unit]
Description=vctl {part} of this node
Documentation=man:vctl(1)
Wants=network-online.target
After=network-online.target{after}

[Service]
Type=exec
User={wishes.user}
EnvironmentFile={wishes.folder}/{VARIABLES}
ExecStart={wishes.programs}/vctl-{part} --config {wishes.folder}/{settings}
Restart=always
RestartSec=1s
{why}
{stop}
KillMode=mixed
# The socket between the two outlives either.
RuntimeDirectory=vctl
RuntimeDirectoryPreserve=yes
{state}
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""
