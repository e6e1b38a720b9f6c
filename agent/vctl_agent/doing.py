"""What is being done on this node, and what nobody else may touch meanwhile.

At most one action a release, and one that changes an adapter, runs at a time: releases of one root
share their adapter in the engine, and nothing else. What failed is noted, and costs that release a
wait and the node nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from vctl_agent.executor import Executor
from vctl_agent.tries import Key, Tries
from vctl_agent.work import Work
from vctl_plans.errors import VctlError
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release

_log = structlog.get_logger(__name__)


class Doing:
    """Has work done beside the cycles.

    Args:
        executor: Does it.
        tries: Takes what was tried in vain.
        wake: Called when there is another phase to tell, and once something is done.
    """

    def __init__(self, executor: Executor, tries: Tries, wake: Callable[[], None]) -> None:
        self._executor = executor
        self._tries = tries
        self._wake = wake
        self._fetched: dict[Key, int] = {}  # per cent of a long fetch, by release
        self._tasks: set[asyncio.Task[None]] = set()
        self.phases: dict[str, NodePhase] = {}  # by what is changed, see `holdings.changed`

    def percent(self, release: Release) -> int:
        """Return how much of a long fetch is done, in per cent; 0: nothing worth a word."""
        return self._fetched.get((release.service, release.number), 0)

    def start(self, work: Work, phase: NodePhase) -> None:
        """Have *work* done; it is told under *phase* until it enters another."""
        self.phases.update(dict.fromkeys(work.names, phase))
        self.run(self._do(work))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* beside the cycles."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def unload_orphan(self, name: str) -> None:
        """Unload an adapter that is no known release's; one whose it comes to be waits meanwhile.

        Raises:
            VctlError: The engine lists it still, or refused.
        """
        if name in self.phases:
            return
        self.phases[name] = NodePhase.DRAINING
        try:
            await self._executor.unload_orphan(name)
        finally:
            del self.phases[name]
            self._wake()

    async def stop(self) -> None:
        """End all of it, and return once it has ended."""
        self._executor.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _do(self, work: Work) -> None:
        key, action, on = work.key, work.action, work.occasion

        def on_phase(phase: NodePhase, fetched_percent: int) -> None:
            self.phases.update(dict.fromkeys(work.names, phase))
            self._fetched[key] = fetched_percent or self._fetched.get(key, 0)
            self._wake()

        try:
            await self._executor.perform(
                action,
                work.release,
                on_phase,
                keeps_adapter=work.keeps_adapter,
                golden=on.golden,
                under=work.under,
            )
            self._tries.forget(key)
        except VctlError as error:
            self._tries.note(key, action, error, on=on)
        except Exception as bug:  # noqa: BLE001  it costs one release a wait, and not the node
            _log.exception("action failed by a bug", action=action.value)
            self._tries.note(key, action, VctlError(f"{type(bug).__name__}: {bug}"), on=on)
        finally:
            self._fetched.pop(key, None)
            for name in work.names:
                self.phases.pop(name, None)
            self._wake()
