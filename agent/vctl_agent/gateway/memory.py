"""What the garbage collector looks at while requests wait for it."""

import asyncio
import gc

_ALLOCATIONS = 20_000
_SETTLED_S = 10.0


def settle() -> None:
    """Have the garbage collector pass over what stays: a full pass over it holds all requests up.

    What comes with etcd's client stays as well. Requests leave next to nothing to collect, so it
    looks at what is new less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
    asyncio.get_running_loop().call_later(_SETTLED_S, gc.freeze)
