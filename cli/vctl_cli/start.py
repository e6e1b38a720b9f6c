"""Where `vctl` begins: what must be there before anything else is imported, and nothing more.

A process that lives for a tenth of a second has no garbage worth looking for; looking for it while
modules are imported costs a tenth of a start.
"""

import contextlib
import gc
import os
import sys
from typing import NoReturn

_COMPLETE_VARIABLE = "_VCTL_COMPLETE"
_OBJECTS_BEFORE_A_LOOK = 50_000


def main() -> None:
    """Run `vctl`, or answer a shell, and exit."""
    gc.set_threshold(_OBJECTS_BEFORE_A_LOOK, 20, 50)
    instruction = os.environ.get(_COMPLETE_VARIABLE, "")
    if instruction.startswith("complete_"):
        from vctl_cli.completing import main as complete  # noqa: PLC0415

        os._exit(complete(instruction))  # a thread may still wait for a store that is away
    from vctl_cli.app import main as run  # noqa: PLC0415

    try:
        run()
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else 0)


def _leave(code: int) -> NoReturn:
    """End at once: what a command opened is closed by now, and taking modules down takes 5 ms."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
