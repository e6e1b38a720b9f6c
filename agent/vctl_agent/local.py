"""What agent and gateway of one node tell each other over a Unix socket.

The gateway listens, since it lives longer; the agent connects, and again after any break. One JSON
object a line, and each message is the sender's *whole* state: a lost line, a restart of either side
or a repeated line changes nothing. Nothing here is ever a request that waits for an answer.
"""

import msgspec

from vctl_plans.statistics import Snapshot

MAX_LINE_BYTES = 4 * 1024 * 1024

HEARTBEAT_S = 1.0
"""The gateway repeats its state at least this often, so that silence means that it is gone."""


class ReadyRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A release that this node's engine has loaded, verified and probed."""

    service: str
    number: int
    digest: str
    model: str  # the name to ask the engine for
    prompt: str = ""  # the prompt that is applied to its chats, a directory; empty: none is


class AgentState(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="agent"):
    """What the gateway may serve here: a release that is missing gets no new request."""

    boot_id: str
    engine_url: str
    ready: tuple[ReadyRelease, ...] = ()
    watched: tuple[str, ...] = ()  # services whose statistics the gateway is to tell
    report_interval_s: float = 2.0  # how often, while there are any


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that hold a reference on a release now."""

    service: str
    number: int
    count: int


class GatewayState(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="gateway"):
    """What the gateway acts on and what it has in flight."""

    boot_id: str
    routes: dict[str, int]  # service -> the route revision that new requests are decided by
    in_flight: tuple[InFlight, ...] = ()  # releases with none are left out
    is_connected: bool = True  # to etcd
    accepted: tuple[ReadyRelease, ...] = ()  # the agent's last word, as acted on
    can_forward: bool = True  # it has the fleet key, so peers take what it passes on
    overrides: dict[str, int] = {}  # service -> the release that root has it served by here
    checks_keys: bool = False  # whether its clients need an API key
    pins: dict[str, dict[int, int]] = {}  # service that moves -> release -> sessions seen on it


class GatewayStatistics(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="counts"):
    """What the gateway counted of the watched services; sent only while there are any."""

    boot_id: str
    snapshots: tuple[Snapshot, ...] = ()


Message = AgentState | GatewayState | GatewayStatistics


def to_line(message: Message) -> bytes:
    """Return *message* as one line."""
    return msgspec.json.encode(message) + b"\n"


def from_line(line: bytes) -> Message:
    """Return the message of one line.

    Raises:
        msgspec.MsgspecError: Not a message.
    """
    message: Message = msgspec.json.decode(line, type=Message)
    return message
