"""What etcd would refuse, refused before it is sent, with a text that names the limit and the size.

Both stores check here, so a transaction that a test's `MemoryStore` takes is one that etcd takes.
Sizes are an upper bound of the encoded request: a request just under the limit may be refused here
that etcd would take, never the other way round.
"""

from vctl_plans.errors import Rejected
from vctl_plans.store.port import (
    MAX_REQUEST_BYTES,
    MAX_TXN_OPS,
    Comparison,
    Operation,
    Put,
    Txn,
    ValueIs,
)
from vctl_plans.store.ranges import encode_key

# Tags, lengths and integers around a key and a value in a RequestOp or Compare, at their widest.
_OVERHEAD_PER_ITEM_BYTES = 48
# The raft header that the server adds before it measures: ids, user name, auth revision.
_OVERHEAD_PER_REQUEST_BYTES = 512


def check_put(key: str, value: bytes) -> None:
    """Refuse a single write that etcd would refuse.

    Raises:
        Rejected: The key is empty, or the request over `MAX_REQUEST_BYTES`.
    """
    check_txn(Txn(operations=(Put(key, value),)))


def check_key(key: str) -> None:
    """Refuse a key that etcd can't have.

    Raises:
        Rejected: The key is empty, or no text.
    """
    if not encode_key(key):
        raise Rejected("a key must not be empty", code="INVALID_ARGUMENT")


def check_txn(txn: Txn) -> None:
    """Refuse a transaction that etcd would refuse.

    Raises:
        Rejected: A key is empty or written twice, or the transaction is over `MAX_TXN_OPS` or
            `MAX_REQUEST_BYTES`.
    """
    for item in (*txn.comparisons, *txn.operations):
        check_key(item.key)
    _check_count("operations", len(txn.operations))
    _check_count("comparisons", len(txn.comparisons))
    _check_written_once(txn)
    size = request_bytes(txn)
    if size > MAX_REQUEST_BYTES:
        raise Rejected(
            f"the request has {size} bytes, etcd takes {MAX_REQUEST_BYTES}",
            code="INVALID_ARGUMENT",
            hint="split it, or keep large values outside etcd and store their digest",
        )


def request_bytes(txn: Txn) -> int:
    """Return an upper bound of the bytes that *txn* has on the wire."""
    return _OVERHEAD_PER_REQUEST_BYTES + sum(
        _item_bytes(item) for item in (*txn.comparisons, *txn.operations)
    )


def _item_bytes(item: Comparison | Operation) -> int:
    value = len(item.value) if isinstance(item, Put | ValueIs) else 0
    return _OVERHEAD_PER_ITEM_BYTES + len(encode_key(item.key)) + value


def _check_count(what: str, count: int) -> None:
    if count > MAX_TXN_OPS:
        raise Rejected(
            f"the transaction has {count} {what}, etcd takes {MAX_TXN_OPS}",
            code="INVALID_ARGUMENT",
            hint="split it into several transactions",
        )


def _check_written_once(txn: Txn) -> None:
    written: set[str] = set()
    for operation in txn.operations:
        if operation.key in written:
            raise Rejected(f"the transaction writes {operation.key} twice", code="INVALID_ARGUMENT")
        written.add(operation.key)
