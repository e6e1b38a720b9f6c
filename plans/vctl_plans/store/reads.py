"""Reads over gRPC: one key, or all keys under a prefix at one revision.

A listing is read in pages that all name the first page's revision, so it is one state however long
it takes. If that revision is compacted meanwhile, the listing begins again.
"""

from vctl_plans.errors import StoreUnavailable
from vctl_plans.store.connection import Connection
from vctl_plans.store.messages import RANGE, get_request, key_value, page_request
from vctl_plans.store.port import KeyValue, Listing
from vctl_plans.store.ranges import key_after, prefix_range
from vctl_plans.store.verdicts import CompactedError, TooLargeError

PAGE_SIZE = 500
_LISTINGS_PER_CALL = 5


async def get_key(connection: Connection, key: str) -> KeyValue | None:
    """Read one key, linearizably."""
    answer = await connection.call(RANGE, get_request(key))
    return key_value(answer.kvs[0]) if answer.kvs else None


async def list_prefix(
    connection: Connection, prefix: str, *, page_size: int = PAGE_SIZE
) -> Listing:
    """Read all keys under *prefix* at one revision.

    Raises:
        StoreUnavailable: Nobody answered, or each listing's revision was compacted on the way.
    """
    for _ in range(_LISTINGS_PER_CALL):
        try:
            return await _list_once(connection, prefix, page_size)
        except CompactedError:
            continue
    raise StoreUnavailable(f"etcd compacts faster than {prefix} can be listed")


async def _list_once(connection: Connection, prefix: str, page_size: int) -> Listing:
    start, end = prefix_range(prefix)
    entries: list[KeyValue] = []
    revision = 0
    while True:
        request = page_request(start, end, page_size, revision)
        try:
            page = await connection.call(RANGE, request)
        except TooLargeError:
            if page_size == 1:
                raise
            page_size = max(1, page_size // 4)
            continue
        revision = revision or page.header.revision
        entries.extend(key_value(raw) for raw in page.kvs)
        if not page.more:
            return Listing(revision, tuple(entries))
        start = key_after(page.kvs[-1].key)
