"""An agent that only conducts: it stands for election, and does what a conductor does.

It has no node: it writes no record and no report, and touches no engine, gateway or disk. Large
fleets run a few, so that no agent of a node needs write access to more than its own keys. Ended by
SIGTERM it gives its office up, and another one has it at once.
"""

import asyncio
import contextlib
import uuid

import structlog

from vctl_agent import admin, election
from vctl_agent.acceptance import Acceptance, RestoreAccepted, opened
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.following import SILENT, UNHEARD, keep_following
from vctl_agent.prometheus import Where
from vctl_agent.settings import ConductorSettings
from vctl_agent.term import Office
from vctl_plans.keys import Keys
from vctl_plans.store.port import Store

_log = structlog.get_logger(__name__)


class Candidate:
    """All parts of an agent that only conducts.

    Args:
        settings: Its settings.
        store: The store, open.
    """

    def __init__(self, settings: ConductorSettings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._keys = Keys(settings.fleet, settings.prefix)
        self._metrics = admin.ConductorMetrics()
        self._acceptance = Acceptance(self._keys, None)
        self._problem = UNHEARD
        self._office = Office(
            store,
            self._keys,
            webhooks=settings.webhooks,
            prometheus=Where(settings.prometheus_url, settings.prometheus_token_file),
            metrics=self._metrics,
            crashpoints=Crashpoints(settings.crash_at),
        )

    def problem(self) -> str:
        """Return why it could not conduct; nothing while it does, or waits for its turn."""
        return self._problem

    async def run(self) -> None:
        """Run until cancelled."""
        listener = await admin.serve(
            self._settings.admin,
            metrics=self._metrics,
            problem=self.problem,
            port_file=self._settings.admin_port_file,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_election())
                group.create_task(self._stand())
                group.create_task(self._acceptance.follow(self._store))
        finally:
            await listener.cleanup()

    async def _stand(self) -> None:
        await election.stand(
            self._store,
            self._keys,
            candidate=f"{self._settings.node} {uuid.uuid4().hex}",
            ttl_s=self._settings.lease_ttl,
            conduct=self._office.serve,
        )

    async def _follow_election(self) -> None:
        """Say who conducts, and whether the store answers, for ever."""
        await keep_following(
            self._follow, self._note, what="election", on_restored=self._begin_anew
        )

    async def _begin_anew(self) -> None:
        await self._acceptance.wait(lambda: opened(self._settings.store))
        raise RestoreAccepted

    def _note(self, problem: str) -> None:
        self._problem = problem

    async def _follow(self) -> None:
        key = self._keys.conductor
        async with contextlib.aclosing(self._store.watch(key)) as updates:  # type: ignore[type-var]
            async for update in updates:
                self._problem = "" if update.is_live else SILENT
                if update.is_live and update.changed:
                    held = update.entries.get(key)
                    who = held.value.decode(errors="replace") if held else ""
                    _log.info("conductor", who=who or "nobody")
