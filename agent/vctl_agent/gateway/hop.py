"""A hop as it is on the wire: which release one gateway asks another for, and both sides' proofs.

The request carries the hop as JSON in ``x-vctl-hop`` and, in ``x-vctl-hop-proof``, the fleet key's
signature of method, path, that very text and the body's hash. The answer carries the signature of
that proof in ``x-vctl-hop``: what listens at a peer's address and is no peer can answer nobody.

There is no time in it, since no clocks are compared across machines. So whoever can record a hop
can send it again: he gets another answer of that release to that same request, as long as it is
served, and changes nothing by it. It does not travel in secret unless the peers' URLs are https.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from blake3 import blake3

from vctl_agent.gateway.fleetkey import FleetKey
from vctl_agent.gateway.wire.heads import Head
from vctl_agent.gateway.wire.message import Request

HOP_HEADER = "x-vctl-hop"
PROOF_HEADER = "x-vctl-hop-proof"

REFUSED = "refused"
"""What an answer carries that is none: another node may still serve the request."""

_REQUEST, _ANSWER = b"vctl hop v1", b"vctl hop answer v1"


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender chose; the peer serves exactly that or refuses."""

    fleet: str
    sender: str  # its node
    service: str
    number: int
    digest: str  # of the release
    route: int  # the route revision that it was chosen by
    request_id: str  # makes each hop's proof another one
    tenant: str = ""  # of the key that the sender has let in; empty: it asks for none


class Leg(msgspec.Struct):
    """What is noted of a request that makes a hop, or has made one."""

    peer: str = ""  # the node that it was passed to
    sender: str = ""  # the node that passed it here
    mark: str = ""  # what the answer to the sender carries


class Outcome(StrEnum):
    """What came of a hop."""

    SERVED = "served"  # answered, whatever the status
    REFUSED = "refused"  # the peer is not ready for it, or has seen it revoked
    DENIED = "denied"  # no proof: another fleet, another key, or no gateway
    UNREACHABLE = "unreachable"  # the peer was not there, or went before it answered
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the answer was cut, by either end


class Message(msgspec.Struct, frozen=True):
    """What of a request is signed beside the hop."""

    method: str
    path: str  # with the query
    body: bytes


def message_of(request: Request, body: bytes) -> Message:
    """Return what is signed of a request, on either side."""
    return Message(request.method, path_of(request), body)


def path_of(request: Request) -> str:
    """Return the path that was checked, not the client's spelling of it, and the query as it is."""
    return f"{request.path}?{request.query}" if request.query else request.path


def headers_of(hop: Hop, message: Message, key: FleetKey) -> dict[str, str]:
    """Return the header fields that a hop is sent with."""
    text = msgspec.json.encode(hop, order="sorted").decode()
    return {HOP_HEADER: text, PROOF_HEADER: key.sign(*_signed(text, message))}


def is_hop(head: Head) -> bool:
    """Whether the request says that it is a hop; one that says so is a hop or is refused."""
    return head.has_own and (HOP_HEADER in head.fields or PROOF_HEADER in head.fields)


def read_hop(
    headers: Mapping[str, str], message: Message, *, fleet: str, key: FleetKey
) -> Hop | None:
    """Return the hop of a request; None: not one of this fleet's gateways has sent it."""
    text = headers.get(HOP_HEADER, "")
    if not key.has_signed(headers.get(PROOF_HEADER, ""), *_signed(text, message)):
        return None
    try:
        hop = msgspec.json.decode(text, type=Hop)
    except msgspec.MsgspecError:
        return None
    return hop if hop.fleet == fleet else None


def receipt(proof: str, key: FleetKey) -> str:
    """Return what the answer to a hop carries."""
    return key.sign(_ANSWER, proof.encode(errors="replace"))


def is_receipt(text: str, proof: str, key: FleetKey) -> bool:
    """Whether an answer is one to the hop of *proof*."""
    return key.has_signed(text, _ANSWER, proof.encode())


def _signed(text: str, message: Message) -> tuple[bytes, ...]:
    return (
        _REQUEST,
        message.method.encode(),
        message.path.encode(errors="replace"),
        text.encode(errors="replace"),
        blake3(message.body).digest(),
    )
