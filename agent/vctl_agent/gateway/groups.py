"""Read the groups that routes name, for as long as some are missing.

A route is acted on only once all groups that it names are here (`state.Known.waiting`). They are
read beside the watch and never in its way: whatever is slow, missing or broken holds up the routes
that name it, and no other, least of all a rollback that names none.

Groups are immutable and named by their digest, so each is read once, and anything else that lies
under its key is refused: a gateway that took other people for a group would send them elsewhere.
"""

import asyncio
import random

import structlog

from vctl_agent.gateway.live import Live
from vctl_plans.codec import decode
from vctl_plans.errors import StoreError, VctlError
from vctl_plans.groups import Groups
from vctl_plans.keys import Keys
from vctl_plans.store.port import Store

FIRST_RETRY_S = 0.2
MAX_RETRY_S = 5.0
_log = structlog.get_logger()


async def read_groups(store: Store, keys: Keys, digest: str) -> Groups:
    """Return the groups of *digest*.

    Raises:
        StoreError: The store does not answer; what lies there is not known.
        VctlError: Nothing lies there, or something else than these groups.
    """
    key = keys.groups(digest)
    entry = await store.get(key)
    if entry is None:
        raise VctlError(f"there are no groups at {key}")
    groups = decode(entry.value, Groups, key=key)
    if groups.digest != digest:
        # Also what a newer vctl wrote with conditions that this one does not know.
        raise VctlError(f"the groups at {key} are others: their digest is {groups.digest}")
    return groups


class GroupsReader:
    """Reads what *live* misses, each by itself, again and again until it is read.

    Args:
        live: Says what is missing, and takes what is read.
        store: Where it lies.
        keys: The fleet's.
    """

    def __init__(self, live: Live, store: Store, keys: Keys) -> None:
        self._live = live
        self._store = store
        self._keys = keys
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        changed = asyncio.Event()
        ring = changed.set
        self._live.bells.append(ring)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    changed.clear()
                    self._begin(tasks)
                    await changed.wait()
        finally:
            self._live.bells.remove(ring)

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        missing = self._live.acted.known.missing()
        for digest in self._reading.keys() - missing:
            self._reading.pop(digest).cancel()
        for digest in missing:
            task = self._reading.get(digest)
            if task is None or task.done():
                self._reading[digest] = tasks.create_task(self._read(digest))

    async def _read(self, digest: str) -> None:
        retry_s, said = FIRST_RETRY_S, ""
        while True:
            try:
                self._live.supply(digest, await read_groups(self._store, self._keys, digest))
            except VctlError as cause:
                if str(cause) != said:
                    said = str(cause)
                    _log.error("groups not read, routes that name them wait", error=said)
                if not isinstance(cause, StoreError):
                    self._live.refuse(digest, said)
            else:
                _log.info("groups read", groups=digest[:15])
                return
            await asyncio.sleep(min(retry_s, MAX_RETRY_S) * random.uniform(0.5, 1.0))  # noqa: S311
            retry_s *= 2
