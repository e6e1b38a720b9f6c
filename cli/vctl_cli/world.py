"""What a command finds around it: variables, streams, clock, store. Passed in: tests pass others.

`World.real()` is the process's own. Nothing else in the package reads the environment, the wall
clock or a standard stream.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vctl_cli.reading import Reader
    from vctl_plans.store.port import Store
    from vctl_plans.store.settings import StoreSettings


@dataclass(frozen=True)
class World:
    """The surroundings of one command."""

    env: Mapping[str, str]
    out: TextIO  # data
    err: TextIO  # talk
    stdin: TextIO
    now: Callable[[], datetime]
    open_store: "Callable[[StoreSettings], Store]"  # called in the event loop that will use it
    open_reader: "Callable[[StoreSettings], Reader]"

    @classmethod
    def real(cls) -> "World":
        """Return the process's own surroundings."""
        return cls(
            env=os.environ,
            out=sys.stdout,
            err=sys.stderr,
            stdin=sys.stdin,
            now=lambda: datetime.now().astimezone(),
            open_store=_open_store,
            open_reader=_open_reader,
        )

    @property
    def config_path(self) -> Path:
        """Where the contexts are, by the XDG base directory specification."""
        base = self.env.get("XDG_CONFIG_HOME") or str(Path(self.env.get("HOME", "")) / ".config")
        return Path(base) / "vctl" / "config.yaml"

    @property
    def state_path(self) -> Path:
        """Where this user's state is, by the XDG base directory specification."""
        home = Path(self.env.get("HOME", ""))
        return Path(self.env.get("XDG_STATE_HOME") or home / ".local" / "state") / "vctl"


def _open_store(settings: "StoreSettings") -> "Store":
    from vctl_plans.store.etcd import open_store  # noqa: PLC0415  imports gRPC

    return open_store(settings)


def _open_reader(settings: "StoreSettings") -> "Reader":
    from vctl_plans.store.gateway import GatewayReader  # noqa: PLC0415  not all commands read

    return GatewayReader(settings)
