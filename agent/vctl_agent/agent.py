"""The parts of one agent, and the tasks that they run in.

Each part has one thing to do and is told what it needs; here they meet.
"""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vctl_agent import admin, election
from vctl_agent.acceptance import Acceptance, RestoreAccepted, opened
from vctl_agent.application import Application
from vctl_agent.collecting import Collecting, Needs, Room
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.draining import Draining
from vctl_agent.engines.epochs import Epochs
from vctl_agent.engines.port import Engine
from vctl_agent.engines.restarting import Restarter
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.exposure import Exposure
from vctl_agent.following import Following, follow_requests
from vctl_agent.gatewaylink import open_link
from vctl_agent.gatewayword import told_by, with_pins
from vctl_agent.golden import GoldenReader
from vctl_agent.gpu import Gpus
from vctl_agent.hasher import Hasher
from vctl_agent.hook import AnyHook, open_hook
from vctl_agent.inspector import Inspector
from vctl_agent.kept import open_kept
from vctl_agent.naming import Namer
from vctl_agent.orphans import Orphans
from vctl_agent.presence import Presence
from vctl_agent.probed import Probed
from vctl_agent.prometheus import Where
from vctl_agent.reaching import Reacher
from vctl_agent.reconciler import Reconciler
from vctl_agent.reporting import StatisticsWriter
from vctl_agent.settings import Settings
from vctl_agent.since import Since
from vctl_agent.telling import ThisNode
from vctl_agent.term import Office
from vctl_plans.capability import EngineFacts
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.release import Release
from vctl_plans.snapshot import Fleet
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.port import KeyValue, Store

_GATEWAY_FOLLOWS_S = 10.0
_LOOK_S = 0.05


class Agent:
    """All parts of one agent.

    Args:
        settings: Its settings.
        store: The store, open.
        engine: The engine's adapter.
        acceptance: What an earlier run knew of the store.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: Engine,
        *,
        acceptance: Acceptance | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._keys = Keys(settings.fleet, settings.prefix)
        self._acceptance = acceptance or Acceptance(self._keys, None)
        self._boot_id = uuid.uuid4().hex
        self._crashpoints = Crashpoints(settings.crash_at)
        self._metrics = admin.Metrics()
        self._last_report: NodeReport | None = None
        self._kept = kept = open_kept(settings)
        self._exposure = Exposure(settings.engine_url)
        self._since = Since()
        self._draining = Draining(settings.node, self._keys, self._wake)
        self._counted = Epochs(engine, kept.probed, kept.epoch)
        self._watch = EngineWatch(
            self._counted, self._on_engine, suspect=kept.suspect, on_facts=self._on_facts
        )
        self._restarter = self._made_restarter()
        self._application = self._made_application()
        self._statistics = self._made_statistics()
        self._link = open_link(
            settings.gateway, settings.socket, self._wake, on_statistics=self._statistics.take
        )
        self._collecting = self._made_collecting()
        executor = self._made_executor()
        self._namer = Namer(executor, self._known_releases, self._wake)
        self._inspector = Inspector(kept.artifacts, self._known_releases, self._wake)
        self._hasher = Hasher(kept.artifacts.describe, self._wake)
        self._reacher = Reacher(kept.artifacts.reach, self._known_fleet, self._wake)
        self._reconciler = self._made_reconciler(executor)
        self._orphans = self._made_orphans()
        followers = (self._reconciler.want, self._statistics.watch, self._collecting.follow)
        self._following = Following(
            store,
            self._keys,
            [*followers, self._orphans.follow],
            on_entries=self._on_entries,
            on_restored=self._begin_anew,
        )
        self._office = self._made_office()
        self._presence = self._made_presence()

    def _made_restarter(self) -> Restarter:
        settings = self._settings
        begun = Probed(settings.state / "restarted.json")
        begun.open()
        hook = _hook(settings.engine_restart_hook, settings.engine_restart_timeout)
        return Restarter(
            hook, self._watch, begun, node=settings.node, engine_url=settings.engine_url
        )

    def _made_application(self) -> Application:
        settings = self._settings
        application = Application(
            settings.state,
            self._kept.artifacts,
            incarnation=lambda: self._watch.incarnation,
            crashpoints=self._crashpoints,
            hook=_hook(settings.hook, settings.hook_timeout, settings.hook_token_file),
        )
        application.open()
        return application

    def _made_statistics(self) -> StatisticsWriter:
        return StatisticsWriter(
            self._store,
            self._keys,
            node=self._settings.node,
            boot_id=self._boot_id,
            is_registered=lambda: self._presence.is_registered,
            crashpoints=self._crashpoints,
        )

    def _made_collecting(self) -> Collecting:
        settings, kept = self._settings, self._kept
        return Collecting(
            kept.collector,
            Needs(self._known_fleet, self._watch, self._link, self._application, kept.registered),
            room=Room(settings.keep_artifacts, settings.artifact_space),
            wake=self._wake,
            crashpoints=self._crashpoints,
        )

    def _made_executor(self) -> Executor:
        return Executor(
            engine=self._counted,
            golden=GoldenReader(self._store, self._keys),
            watch=self._watch,
            artifacts=self._kept.artifacts,
            probed=self._kept.probed,
            registered=self._kept.registered,
            application=self._application,
            crashpoints=self._crashpoints,
            make_room=self._collecting.make_room,
        )

    def _made_reconciler(self, executor: Executor) -> Reconciler:
        settings = self._settings
        return Reconciler(
            ThisNode(settings.node, self._boot_id, settings.engine_url),
            engine=self._watch,
            artifacts=self._kept.artifacts,
            probed=self._kept.probed,
            application=self._application,
            executor=executor,
            on_report=self._on_report,
            completed=self._completed,
            draining=self._draining,
            has_gateway=settings.gateway != "none",
            memory=Gpus().memory,
        )

    def _made_orphans(self) -> Orphans:
        return Orphans(
            self._kept.artifacts,
            self._watch,
            self._link,
            fleet=self._known_fleet,
            unload=self._reconciler.unload_orphan,
        )

    def _made_office(self) -> Office:
        settings = self._settings
        return Office(
            self._store,
            self._keys,
            webhooks=settings.webhooks,
            prometheus=Where(settings.prometheus_url, settings.prometheus_token_file),
            metrics=self._metrics,
            crashpoints=self._crashpoints,
        )

    def _made_presence(self) -> Presence:
        settings = self._settings
        record = NodeRecord(
            node=settings.node,
            boot_id=self._boot_id,
            gateway_url=settings.gateway_url,
            admin_url=f"http://{settings.admin.host}:{settings.admin.port}",
            engine=settings.engine,
            labels=dict(settings.label),
        )
        return Presence(
            self._store,
            self._keys,
            record,
            ttl_s=settings.lease_ttl,
            crashpoints=self._crashpoints,
        )

    def _known_releases(self) -> list[Release]:
        return self._reconciler.releases()

    def _known_fleet(self) -> Fleet | None:
        """Return what the fleet wants; None while it could want something else by now."""
        return None if self._following.problem else self._reconciler.fleet

    def _completed(self, report: NodeReport) -> NodeReport:
        return msgspec.structs.replace(
            report,
            checks=self._inspector.checks,
            hashed=self._hasher.requests.answers,
            named=self._namer.requests.answers,
            collected=self._collecting.requests.answers,
            reached=self._reacher.requests.answers,
            disk_used=self._collecting.used,
            exposed=self._exposure.found,
            engine_since=self._since.of(report.incarnation),
            drain=self._draining.answer(self._link.heard),
            **told_by(self._link.heard),
        )

    def _on_entries(self, fleet: Fleet, entries: Mapping[str, KeyValue]) -> None:
        # A store in memory has no cluster of its own to know.
        self._acceptance.know(getattr(self._store, "fingerprint", None) or Fingerprint())
        self._draining.follow(fleet, entries)

    async def _begin_anew(self) -> None:
        """End this run once an operator accepts the restored store, and the gateway follows it.

        What the routes before served is withdrawn by the next run: by then no request may want it.
        """
        await self._acceptance.wait(lambda: opened(self._settings.store))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATEWAY_FOLLOWS_S):
                while True:
                    heard = self._link.heard
                    if heard is None or heard.is_connected:
                        break
                    await asyncio.sleep(_LOOK_S)
        raise RestoreAccepted

    def _wake(self) -> None:
        self._reconciler.wake()
        self._orphans.look()
        self._restarter.look()

    def _on_engine(self) -> None:
        self._collecting.look()
        self._exposure.look(self._watch.incarnation)
        self._wake()

    def _on_facts(self, facts: EngineFacts) -> None:
        self._presence.announce(facts)

    def _on_report(self, report: NodeReport) -> None:
        self._last_report = report
        self._metrics.show(report)
        self._metrics.rotten.set(len(self._inspector.rotten))
        self._presence.report(with_pins(report, self._link.heard))

    def problem(self) -> str:
        """Return why the agent is not ready; nothing when it is.

        A candidate that failed here is none: the node goes on with what serves.
        """
        report = self._last_report
        obstacles = (
            self._following.problem,
            "" if self._presence.is_registered else "not registered in the store",
            self._watch.problem,
            "" if report and report.gateway_ok else "the gateway does not act on our last word",
            self._reconciler.unserved,
        )
        return next(filter(None, obstacles), "")

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
                self._start(group)
        finally:
            await listener.cleanup()

    def _start(self, group: asyncio.TaskGroup) -> None:
        settings = self._settings
        group.create_task(self._watch.run())
        group.create_task(self._restarter.run())
        group.create_task(self._link.run())
        group.create_task(self._following.run())
        group.create_task(self._reconciler.run(self._link))
        group.create_task(self._presence.keep_record())
        group.create_task(self._presence.write_reports())
        group.create_task(self._statistics.run())
        group.create_task(self._acceptance.follow(self._store))
        group.create_task(self._collecting.run())
        self._start_answering(group)
        group.create_task(self._orphans.run())
        if settings.scrub_interval:
            group.create_task(self._inspector.scrub(settings.scrub_interval))
        if settings.conduct:
            group.create_task(self._stand())

    def _start_answering(self, group: asyncio.TaskGroup) -> None:
        """Answer requests of every kind, beside each other: hashing takes long, naming does not."""
        answerers = (
            self._inspector,
            self._collecting,
            self._hasher,
            self._namer,
            self._reacher,
        )
        for each in answerers:
            group.create_task(each.requests.run())
        asks = [*(each.requests.ask for each in answerers), self._draining.ask]
        group.create_task(
            follow_requests(
                self._store,
                self._keys,
                self._settings.node,
                asks,
                on_refused=self._draining.refuse,
            )
        )

    async def _stand(self) -> None:
        await election.stand(
            self._store,
            self._keys,
            candidate=f"{self._settings.node} {self._boot_id}",
            ttl_s=self._settings.lease_ttl,
            conduct=self._office.serve,
        )


def _hook(
    target: Sequence[str], timeout_s: float, token_file: Path | None = None
) -> AnyHook | None:
    if not target:
        return None
    return open_hook(target, timeout_s=timeout_s, environment=os.environ, token_file=token_file)
