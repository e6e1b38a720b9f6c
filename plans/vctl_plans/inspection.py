"""What operators ask of nodes, and what a node answers in its report.

A request is one small key under a lease: it expires, and with it the answers in the reports. Only a
drain is under none: it lasts until an operator ends it.
"""

from enum import StrEnum

import msgspec

from vctl_plans.codec import Value
from vctl_plans.phase import Component
from vctl_plans.release import Actor

SCRUB = "scrub"
"""Stands for the request of what a node found by itself, reading again what lies on its disk."""


class NodeRequest(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Something that nodes are to do once and answer in their reports."""

    id: str
    nodes: tuple[str, ...] = ()  # only these; empty: all
    by: Actor = Actor()

    def is_for(self, node: str) -> bool:
        """Whether *node* is asked."""
        return not self.nodes or node in self.nodes


class VerifyRequest(NodeRequest, frozen=True, kw_only=True, tag="verify"):
    """Hash again what is served from."""

    service: str = ""  # empty: all services


class HashRequest(NodeRequest, frozen=True, kw_only=True, tag="hash"):
    """Hash what lies at a source that only nodes can read; nothing is kept of it."""

    source: str
    component: Component


class CollectRequest(NodeRequest, frozen=True, kw_only=True, tag="collect"):
    """Remove the artifacts that nothing needs any more."""

    is_dry: bool = False  # only say what would go


class ReachRequest(NodeRequest, frozen=True, kw_only=True, tag="reach"):
    """Say what of all that may have to be read again cannot be read at its source now."""


class NameRequest(NodeRequest, frozen=True, kw_only=True, tag="name"):
    """Have the engine hold a release under its service's own name too, for clients without vctl."""

    service: str
    number: int
    digest: str  # of the release


class DrainRequest(NodeRequest, frozen=True, kw_only=True, tag="drain"):
    """Take no new requests until this key goes; it is under no lease.

    Every node reads it: who is drained answers for nobody who is to be.
    """

    reason: str = ""

    def is_for(self, node: str) -> bool:  # noqa: ARG002  see above
        """Whether *node* has to know of it: each does."""
        return True


def drain_id(node: str) -> str:
    """Return the id of the request that drains *node*: there is one at most."""
    return f"drain-{node}"


ACCEPT_RESTORE = "accept-restore"
"""Names the key of an operator's last `AcceptRestore`."""


KEPT_WORDS = 32
"""Words that are remembered: of more restores than there are backups to go back to."""


class AcceptRestore(NodeRequest, frozen=True, kw_only=True, tag="accept-restore"):
    """Take etcd as it is, though it went back: a backup was restored on purpose.

    It is under no lease, and stays as the record of who said so.
    """

    reason: str = ""
    at: str = ""  # the operator's own clock, UTC: for people
    earlier: tuple[str, ...] = ()  # ids of words before it: a backup that holds one says nothing

    @property
    def used_up(self) -> tuple[str, ...]:
        """The ids that count no more once this one has counted, the newest last."""
        return (*self.earlier, self.id)[-KEPT_WORDS:]


OperatorRequest = (
    VerifyRequest
    | HashRequest
    | CollectRequest
    | ReachRequest
    | NameRequest
    | DrainRequest
    | AcceptRestore
)
"""What a key under `Keys.requests` may hold."""


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node found when it hashed one artifact again."""

    request: str  # a request's id, or `SCRUB`
    service: str
    number: int
    root: str
    component: Component = Component.ADAPTER
    size_bytes: int = 0
    problem: str = ""  # what differs; empty: the bytes are those of the root

    @property
    def is_good(self) -> bool:
        """Whether the bytes are those that the root names."""
        return not self.problem

    @property
    def problem_text(self) -> str:
        """What differs, and of what: in one sentence for a person."""
        part = "" if self.component is Component.ADAPTER else f"{self.component}: "
        return f"release {self.number} of {self.service}: {part}{self.problem}"


class Checks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to one request: it is whole once it is there."""

    request: str
    found: tuple[Checked, ...] = ()  # none: the node holds nothing of the service


class Hashed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to a `HashRequest`."""

    request: str
    root: str = ""  # empty: it could not be hashed
    size_bytes: int = 0
    rank: int = 0  # of an adapter
    base_name: str = ""  # the base that an adapter says it was trained on
    problem: str = ""


class Collected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to a `CollectRequest`."""

    request: str
    removed: tuple[str, ...] = ()  # roots, those that went or would go; at most the first 50
    count: int = 0  # of all of them
    freed_bytes: int = 0
    kept: int = 0  # artifacts that stay
    reasons: dict[str, int] = {}  # why they stay, see `retention.Why`: how many of each
    problem: str = ""


class Unreached(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact that a node cannot read at its source."""

    service: str
    number: int  # the newest release that needs it
    component: Component = Component.ADAPTER
    problem: str
    hint: str = ""


class Reached(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to a `ReachRequest`."""

    request: str
    asked: int = 0  # artifacts that it looked for
    unreached: int = 0  # of them
    problems: tuple[Unreached, ...] = ()  # the first of them, see `reachability.MAX_UNREACHED`


class Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to a `NameRequest`."""

    request: str
    path: str = ""  # from which the engine lists the service's own name
    problem: str = ""  # why it does not


class DrainPhase(StrEnum):
    """How far a drain is."""

    WAITING = "waiting"  # the node serves on: nobody else could
    DRAINING = "draining"  # no new request; some are still in flight
    DRAINED = "drained"


class Drained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to a `DrainRequest`."""

    request: str
    phase: DrainPhase
    problem: str = ""  # why it waits
    note: str = ""  # what the drain cannot change
    by: Actor = Actor()
    reason: str = ""

    @property
    def is_out(self) -> bool:
        """Whether the node takes no new request."""
        return self.phase is not DrainPhase.WAITING

    @property
    def sentence(self) -> str:
        """How far it is, and for whom and why, for a person."""
        who = f" by {self.by.user}" if self.by.user else ""
        why = f" ({self.reason})" if self.reason else ""
        more = f": {self.problem}" if self.problem else ""
        word = "to be drained" if self.phase is DrainPhase.WAITING else self.phase.value
        return f"{word}{who}{why}{more}{f'; {self.note}' if self.note else ''}"
