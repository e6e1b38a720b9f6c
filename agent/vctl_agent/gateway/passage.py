"""What is noted of one request on its way: for the access log and the counts."""

import msgspec

from vctl_agent.gateway.hop import Leg

CLIENT_GONE = 499
"""nginx's status for a client that went away; nobody is sent it."""


class Passage(msgspec.Struct):
    """What is noted of one request: enough to find it again, nothing of what it says."""

    request_id: str
    id_line: bytes  # the field that tells it
    started_s: float
    tenant: str = ""  # of the request's key; empty: nobody is asked for one
    service: str = ""
    release: int = 0
    route: int = 0
    status: int = CLIENT_GONE
    why: str = ""  # the release was chosen; empty: none was
    group: str = ""  # that the request is in, where an override chose
    pin: str = ""  # that the client is given
    held_s: float = 0.0  # that it waited behind a barrier
    leg: Leg = msgspec.field(default_factory=Leg)
