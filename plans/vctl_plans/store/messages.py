"""Between the port's values and etcd's protobuf messages. Nothing here waits or decides.

The messages are those that `python3-etcd3` generated; its client is not used (see `etcd`). They
have no types that mypy could follow, so this module is where `Any` ends.
"""

import enum
from typing import Any

import grpc.aio
import msgspec
from etcd3 import etcdrpc

from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.port import (
    Comparison,
    CreateRevisionIs,
    KeyValue,
    ModRevisionIs,
    Operation,
    Put,
    Txn,
)
from vctl_plans.store.ranges import decode_key, encode_key
from vctl_plans.store.refusals import asked

Message = Any
"""A protobuf message of `etcdrpc`."""


class Effect(enum.Enum):
    """What it means to send a request twice, or not to know whether it arrived."""

    NONE = "none"  # a read, or a lease that runs out if nobody uses it
    REPEATABLE = "repeatable"  # the same write again changes nothing
    ONCE = "once"  # never to be repeated


class Method(msgspec.Struct, frozen=True):
    """One of etcd's methods."""

    name: str
    stub: Any  # the generated class that has the method
    effect: Effect = Effect.NONE
    needs_quorum: bool = False  # its header is as new as anything seen before

    def bind(self, channel: grpc.aio.Channel) -> Any:
        """Return the callable that sends this method's requests over *channel*."""
        return getattr(self.stub(channel), self.name)


RANGE = Method("Range", etcdrpc.KVStub, needs_quorum=True)
PUT = Method("Put", etcdrpc.KVStub, Effect.REPEATABLE, needs_quorum=True)
TXN = Method("Txn", etcdrpc.KVStub, Effect.ONCE, needs_quorum=True)
GRANT = Method("LeaseGrant", etcdrpc.LeaseStub)
REVOKE = Method("LeaseRevoke", etcdrpc.LeaseStub)
KEEPALIVE = Method("LeaseKeepAlive", etcdrpc.LeaseStub)
WATCH = Method("Watch", etcdrpc.WatchStub)
AUTHENTICATE = Method("Authenticate", etcdrpc.AuthStub)


def touched(request: Message) -> tuple[list[str], list[str]]:
    """Return what a request reads and what it writes: keys, or a prefix that ends in ``*``."""
    match request:
        case etcdrpc.RangeRequest():
            return [asked(request.key, request.range_end)], []
        case etcdrpc.PutRequest():
            return [], [decode_key(request.key)]
        case etcdrpc.TxnRequest():
            writes = [
                each.request_put.key or each.request_delete_range.key for each in request.success
            ]
            return [decode_key(c.key) for c in request.compare], [decode_key(w) for w in writes]
        case _:
            return [], []


def fingerprint(header: Message) -> Fingerprint:
    """Return what a response's header tells of the cluster."""
    return Fingerprint(header.cluster_id, header.raft_term, header.revision)


def key_value(raw: Message) -> KeyValue:
    """Return a key as the port has it."""
    return KeyValue(
        key=decode_key(raw.key),
        value=raw.value,
        create_revision=raw.create_revision,
        mod_revision=raw.mod_revision,
        version=raw.version,
        lease_id=raw.lease,
    )


def is_delete(event: Message) -> bool:
    """Tell whether a watch's event is a deletion."""
    return bool(event.type == event.DELETE)


def get_request(key: str) -> Message:
    """Ask for one key."""
    return etcdrpc.RangeRequest(key=encode_key(key))


def page_request(start: bytes, end: bytes, limit: int, revision: int) -> Message:
    """Ask for the first *limit* keys of a range at *revision* (0: the newest)."""
    return etcdrpc.RangeRequest(key=start, range_end=end, limit=limit, revision=revision)


def put_request(put: Put) -> Message:
    """Write one key."""
    return etcdrpc.PutRequest(key=encode_key(put.key), value=put.value, lease=put.lease_id)


def txn_request(txn: Txn) -> Message:
    """Do all operations if all comparisons hold."""
    return etcdrpc.TxnRequest(
        compare=[_comparison(comparison) for comparison in txn.comparisons],
        success=[_operation(operation) for operation in txn.operations],
    )


def watch_request(start: bytes, end: bytes, revision: int) -> Message:
    """Watch a range from *revision* on."""
    create = etcdrpc.WatchCreateRequest(key=start, range_end=end, start_revision=revision)
    return etcdrpc.WatchRequest(create_request=create)


def progress_request() -> Message:
    """Ask a watch stream for a sign of life."""
    return etcdrpc.WatchRequest(progress_request=etcdrpc.WatchProgressRequest())


def grant_request(ttl_s: int) -> Message:
    """Ask for a lease; the server chooses its id."""
    return etcdrpc.LeaseGrantRequest(TTL=ttl_s)


def revoke_request(lease_id: int) -> Message:
    """End a lease."""
    return etcdrpc.LeaseRevokeRequest(ID=lease_id)


def keepalive_request(lease_id: int) -> Message:
    """Renew a lease."""
    return etcdrpc.LeaseKeepAliveRequest(ID=lease_id)


def authenticate_request(user: str, password: str) -> Message:
    """Ask for a token."""
    return etcdrpc.AuthenticateRequest(name=user, password=password)


def _comparison(comparison: Comparison) -> Message:
    compare = etcdrpc.Compare
    key = encode_key(comparison.key)
    if isinstance(comparison, ModRevisionIs):
        return compare(
            key=key, result=compare.EQUAL, target=compare.MOD, mod_revision=comparison.revision
        )
    if isinstance(comparison, CreateRevisionIs):
        return compare(
            key=key,
            result=compare.EQUAL,
            target=compare.CREATE,
            create_revision=comparison.revision,
        )
    return compare(key=key, result=compare.EQUAL, target=compare.VALUE, value=comparison.value)


def _operation(operation: Operation) -> Message:
    if isinstance(operation, Put):
        return etcdrpc.RequestOp(request_put=put_request(operation))
    delete = etcdrpc.DeleteRangeRequest(key=encode_key(operation.key))
    return etcdrpc.RequestOp(request_delete_range=delete)
