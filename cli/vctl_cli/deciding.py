"""Read, decide, write; and once more when something changed in between.

The decision itself is `vctl_plans.operate`'s. A write rests on the reading that it compares, so
whoever loses a race decides again on what the winner wrote.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from vctl_cli.reading import Reading
from vctl_plans.errors import Conflict, StoreUnavailable
from vctl_plans.keys import Keys
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue
from vctl_plans.store.commit import begin_txn, commit_own, continue_txn
from vctl_plans.store.port import Store
from vctl_plans.units import utc_text

MAX_ATTEMPTS = 10

PAUSE_S = 0.02
"""After the first conflict; it grows with each, so that two commands do not race for ever."""

T = TypeVar("T")
D = TypeVar("D", bound=Begin | Continue | Attach | AlreadyDone)


async def repeated(act: Callable[[], Awaitable[T]]) -> T:
    """Do *act*, again after each `Conflict`; it reads anew each time.

    Raises:
        StoreUnavailable: Something changed each time.
    """
    for attempt in range(MAX_ATTEMPTS):
        try:
            return await act()
        except Conflict:
            await asyncio.sleep(PAUSE_S * attempt)
    raise StoreUnavailable(
        f"something changed on each of {MAX_ATTEMPTS} attempts",
        hint="others write the same service now; try again",
    )


async def carry_out(
    store: Store,
    keys: Keys,
    read: Callable[[], Awaitable[Reading]],
    decide: Callable[[Reading], D],
) -> D:
    """Read, decide and write, until it is written or there is nothing to write.

    Args:
        store: Where to.
        keys: The fleet's keys.
        read: Reads the service and the nodes.
        decide: Decides on a reading, or refuses.

    Returns:
        The decision that is now written; or that something already is as wanted.
    """

    async def once() -> D:
        reading = await read()
        decision = decide(reading)
        if isinstance(decision, Begin):
            txn = begin_txn(keys, reading.service, decision, at=utc_text(datetime.now(UTC)))
            await commit_own(store, keys, txn, decision.rollout)
        elif isinstance(decision, Continue):
            txn = continue_txn(keys, reading.service, decision, at=utc_text(datetime.now(UTC)))
            await commit_own(store, keys, txn, decision.rollout)
        return decision

    return await repeated(once)
