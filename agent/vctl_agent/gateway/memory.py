"""The garbage collector of a program whose requests leave it next to nothing.

A full pass over all that a program keeps takes tens of milliseconds, in which no request goes on.
So what is there for good is passed over, and what is new is looked at less often.
"""

import asyncio
import gc

_ALLOCATIONS = 20_000
"""Objects, on balance, after which what is new is looked at."""

_SETTLED_S = 10.0
"""By then etcd's client has been loaded, which stays as well."""


def settle(loop: asyncio.AbstractEventLoop) -> None:
    """Have what is there now, and what is there in a while, passed over."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
    loop.call_later(_SETTLED_S, gc.freeze)  # which takes no time
