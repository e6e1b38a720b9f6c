"""What happened within one event, for the checks to judge once the event is over."""

from typing import Any

import msgspec

from vctl_plans.store.port import Txn


class Wrote(msgspec.Struct, frozen=True):
    """The store took a transaction."""

    txn: Txn
    revision: int
    writer: Any  # `Client`, or None
    grounds: Any  # `Grounds` of a conductor's decision, else None


class HandedOver(msgspec.Struct, frozen=True):
    """A gateway is about to hand a request to its engine."""

    gateway: Any
    release: int
    target: Any
    at: Any
    session: Any
    asked: int  # the release that the client had named; 0: none


class Answered(msgspec.Struct, frozen=True):
    """A client got an answer."""

    gateway: Any
    session: Any
    release: int
    at: Any
    target: Any
    path: str  # from which the answering adapter was loaded
    asked: int  # the release that the client had named; 0: none


class Acked(msgspec.Struct, frozen=True):
    """A gateway says that it acts on a route."""

    gateway: Any
    revision: int


class LostContact(msgspec.Struct, frozen=True):
    """A gateway has lost the store."""

    gateway: Any
    before: Any


class Asks(msgspec.Struct, frozen=True):
    """An engine is asked to load an adapter."""

    node: Any
    name: str


class Loads(msgspec.Struct, frozen=True):
    """An engine is about to read bytes."""

    node: Any
    name: str
    path: str
    is_served: bool  # the gateway has requests for it, or had a moment ago


class Unloads(msgspec.Struct, frozen=True):
    """An engine is about to forget an adapter that it holds."""

    node: Any
    name: str
    requests: int  # that it is answering with it
    asked_at: float  # when it was asked to


class Takes(msgspec.Struct, frozen=True):
    """An application is about to lose a release's file."""

    node: Any
    number: int
    requests: int  # that are answered with it


class Removes(msgspec.Struct, frozen=True):
    """An artifact is about to be removed from a node's disk."""

    node: Any
    root: str


Fact = (
    Wrote | HandedOver | Answered | Acked | LostContact | Asks | Loads | Unloads | Takes | Removes
)
