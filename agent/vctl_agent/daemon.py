"""The agent's program: settings, signals, and the end.

Ended by SIGTERM or SIGINT, it leaves engine and gateway as they are: the gateway goes on serving on
the agent's last word, and the next agent adopts what it finds. Its lease is given back, so that the
fleet sees at once that it is gone.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from vctl_agent import log
from vctl_agent.acceptance import Acceptance, RestoreAccepted
from vctl_agent.agent import Agent
from vctl_agent.candidate import Candidate
from vctl_agent.engines.opening import open_engine
from vctl_agent.kept import lock_state
from vctl_agent.settings import (
    ConductorSettings,
    Settings,
    read_conductor_settings,
    read_settings,
)
from vctl_plans.errors import SettingsError, VctlError
from vctl_plans.keys import Keys

_USAGE = 2
_FAILED = 1

_log = structlog.get_logger(__name__)


async def _main(settings: Settings | ConductorSettings) -> None:
    if isinstance(settings, ConductorSettings):
        await _conduct_only(settings)
    else:
        await _serve_node(settings)


async def _serve_node(settings: Settings) -> None:
    from vctl_plans.store.etcd import open_store  # noqa: PLC0415  gRPC loads here, after the lock

    lock = lock_state(settings.state)
    acceptance = Acceptance(Keys(settings.fleet, settings.prefix), settings.state / "cluster.json")
    store = open_store(settings.store, known=acceptance.fingerprint)
    engine = open_engine(settings)
    try:
        await _until_told(Agent(settings, store, engine, acceptance=acceptance).run())
    finally:
        await engine.close()
        await store.close()
        os.close(lock)


async def _conduct_only(settings: ConductorSettings) -> None:
    from vctl_plans.store.etcd import open_store  # noqa: PLC0415  gRPC loads here

    store = open_store(settings.store)
    try:
        await _until_told(Candidate(settings, store).run())
    finally:
        await store.close()


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run *work* until it ends, or a signal ends it."""
    running = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        _log.info("stopped")


def causes(group: BaseExceptionGroup) -> list[str]:
    """Return what a group, and every group within, has to say."""
    return [
        said
        for each in group.exceptions
        for said in (causes(each) if isinstance(each, BaseExceptionGroup) else [str(each)])
    ]


def _settings(arguments: Sequence[str]) -> Settings | ConductorSettings:
    return read_conductor_settings(arguments, os.environ) or read_settings(arguments, os.environ)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the agent's program; exit 0 when it was told to end, 1 when it could not go on."""
    try:
        settings = _settings(sys.argv[1:] if argv is None else argv)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"vctl-agent: {problem}\n")
        sys.stderr.write(f"{error.hint}\n" if error.hint else "")
        sys.exit(_USAGE)
    log.configure(level=settings.log_level, node=settings.node, fleet=settings.fleet)
    problems: list[str] = []
    begins_anew = False
    try:
        asyncio.run(_main(settings))
    except* RestoreAccepted:
        begins_anew = True
    except* (VctlError, OSError) as group:
        problems += causes(group)
    for said in problems:
        _log.error("cannot go on", cause=said)
    if problems:
        sys.exit(_FAILED)
    if begins_anew:  # as another process: nothing of what was known stays in memory
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  ourselves


if __name__ == "__main__":
    main()
