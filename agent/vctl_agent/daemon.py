"""The agent's program: settings, signals, and the tasks that make an agent.

Ended by SIGTERM or SIGINT, it leaves engine and gateway as they are: the gateway goes on serving on
the agent's last word, and the next agent adopts what it finds. Its lease is given back, so that the
fleet sees at once that it is gone.
"""

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from vctl_agent import admin, election, log
from vctl_agent.acceptance import Acceptance, RestoreAccepted
from vctl_agent.application import Application
from vctl_agent.candidate import Candidate
from vctl_agent.collecting import Collecting, Needs, Room
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.draining import Draining
from vctl_agent.engines.opening import open_engine
from vctl_agent.engines.port import Engine
from vctl_agent.engines.restarting import Restarter
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.exposure import Exposure
from vctl_agent.gatewaylink import open_link
from vctl_agent.golden import GoldenReader
from vctl_agent.gpu import Gpus
from vctl_agent.hasher import Hasher
from vctl_agent.hook import AnyHook, open_hook
from vctl_agent.inspector import Inspector
from vctl_agent.kept import Kept, lock_state, open_kept
from vctl_agent.naming import Namer
from vctl_agent.presence import Presence
from vctl_agent.probed import Probed
from vctl_agent.prometheus import Where
from vctl_agent.reconciler import Reconciler
from vctl_agent.reporting import StatisticsWriter
from vctl_agent.requests import read_requests
from vctl_agent.seen import Since
from vctl_agent.settings import (
    ConductorSettings,
    Settings,
    read_conductor_settings,
    read_settings,
)
from vctl_agent.sweeping import sweep
from vctl_agent.term import Office
from vctl_agent.wishes import Wishes
from vctl_plans.capability import EngineFacts
from vctl_plans.errors import RestoredBackup, SettingsError, StoreError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.release import Release
from vctl_plans.snapshot import Fleet
from vctl_plans.store.guard import Fingerprint
from vctl_plans.store.port import Store

_USAGE = 2
_FAILED = 1
_RETRY_S = 2.0
_GATEWAY_FOLLOWS_S = 10.0
_LOOK_S = 0.05

_log = structlog.get_logger(__name__)


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
        self._wishes = Wishes(self._keys)
        self._last_report: NodeReport | None = None
        self._store_problem = "the store has not answered yet"
        kept = open_kept(settings)
        watch = EngineWatch(engine, self._on_engine, suspect=kept.suspect, on_facts=self._on_facts)
        application = Application(
            settings.state,
            kept.artifacts,
            incarnation=lambda: watch.incarnation,
            crashpoints=self._crashpoints,
            hook=_hook(settings.hook, settings.hook_timeout, settings.hook_token_file),
        )
        application.open()
        executor = Executor(
            engine=engine,
            golden=GoldenReader(store, self._keys),
            watch=watch,
            artifacts=kept.artifacts,
            probed=kept.probed,
            registered=kept.registered,
            application=application,
            crashpoints=self._crashpoints,
            make_room=lambda *wish: self._collecting.make_room(*wish),  # noqa: PLW0108  made below
        )
        self._artifacts = kept.artifacts
        self._engine_watch = watch
        self._restarter = self._made_restarter(watch)
        self._namer = Namer(executor, self._known_releases, self._wake)
        self._inspector = Inspector(kept.artifacts, self._known_releases, self._wake)
        self._hasher = Hasher(kept.artifacts.describe, self._wake)
        self._statistics = self._made_statistics()
        self._link = open_link(
            settings.gateway, settings.socket, self._wake, on_statistics=self._statistics.take
        )
        self._exposure = Exposure(settings.engine_url)
        self._since = Since()
        self._collecting = self._made_collecting(kept, application)
        self._draining = Draining(settings.node, self._keys, self._wake)
        self._reconciler = Reconciler(
            node=settings.node,
            boot_id=self._boot_id,
            engine_url=settings.engine_url,
            engine=watch,
            artifacts=kept.artifacts,
            probed=kept.probed,
            application=application,
            executor=executor,
            on_report=self._on_report,
            checks=lambda: self._inspector.checks,
            completed=self._completed,
            hashed=lambda: self._hasher.hashed,
            named=lambda: self._namer.named,
            draining=self._draining,
            has_gateway=settings.gateway != "none",
            memory=Gpus().memory,
        )
        self._office = self._made_office()
        self._presence = Presence(
            store,
            self._keys,
            self._record(),
            ttl_s=settings.lease_ttl,
            crashpoints=self._crashpoints,
        )

    def _fingerprint(self) -> Fingerprint:
        """Return how far the store has come; a store in memory does not tell."""
        return getattr(self._store, "fingerprint", None) or Fingerprint()

    def _open_fresh(self) -> Store:
        from vctl_plans.store.etcd import open_store  # noqa: PLC0415  gRPC is there already

        return open_store(self._settings.store)

    def _made_restarter(self, watch: EngineWatch) -> Restarter:
        settings = self._settings
        begun = Probed(settings.state / "restarted.json")
        begun.open()
        hook = _hook(settings.engine_restart_hook, settings.engine_restart_timeout)
        return Restarter(hook, watch, begun, node=settings.node, engine_url=settings.engine_url)

    def _made_collecting(self, kept: Kept, application: Application) -> Collecting:
        settings, watch = self._settings, self._engine_watch
        return Collecting(
            kept.collector,
            Needs(self._known_fleet, watch, self._link, application, kept.registered),
            room=Room(settings.keep_artifacts, settings.artifact_space),
            wake=self._wake,
            crashpoints=self._crashpoints,
        )

    def _made_statistics(self) -> StatisticsWriter:
        return StatisticsWriter(
            self._store,
            self._keys,
            node=self._settings.node,
            boot_id=self._boot_id,
            is_registered=lambda: self._presence.is_registered,
            crashpoints=self._crashpoints,
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

    def _record(self) -> NodeRecord:
        settings = self._settings
        return NodeRecord(
            node=settings.node,
            boot_id=self._boot_id,
            gateway_url=settings.gateway_url,
            admin_url=f"http://{settings.admin.host}:{settings.admin.port}",
            engine=settings.engine,
        )

    def _known_releases(self) -> list[Release]:
        return self._reconciler.releases()

    def _known_fleet(self) -> Fleet | None:
        """Return what the fleet wants; None while it could want something else by now."""
        return None if self._store_problem else self._reconciler.fleet

    def _completed(self, report: NodeReport) -> NodeReport:
        return msgspec.structs.replace(
            report,
            collected=self._collecting.answers,
            disk_used=self._collecting.used,
            exposed=self._exposure.found,
            engine_since=self._since.of(report.incarnation),
        )

    def _wake(self) -> None:
        self._reconciler.wake()
        self._restarter.look()

    def _on_engine(self) -> None:
        self._collecting.look()
        self._exposure.look(self._engine_watch.incarnation)
        self._wake()

    def _on_facts(self, facts: EngineFacts) -> None:
        self._presence.announce(facts)

    def _on_report(self, report: NodeReport) -> None:
        self._last_report = report
        self._metrics.show(report)
        self._metrics.rotten.set(len(self._inspector.rotten))
        self._presence.report(report)

    def problem(self) -> str:
        """Return why the agent is not ready; nothing when it is.

        A candidate that failed here is none: the node goes on with what serves.
        """
        report = self._last_report
        obstacles = (
            self._store_problem,
            "" if self._presence.is_registered else "not registered in the store",
            self._engine_watch.problem,
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
                group.create_task(self._engine_watch.run())
                group.create_task(self._restarter.run())
                group.create_task(self._link.run())
                group.create_task(self._follow_services())
                group.create_task(self._reconciler.run(self._link))
                group.create_task(self._presence.keep_record())
                group.create_task(self._presence.write_reports())
                group.create_task(self._statistics.run())
                group.create_task(self._follow_requests())
                group.create_task(self._acceptance.follow(self._store))
                group.create_task(self._inspector.answer())
                group.create_task(self._collecting.answer())
                group.create_task(self._collecting.run())
                group.create_task(self._hasher.answer())
                group.create_task(sweep(self._artifacts, self._reconciler.wanted_roots))
                group.create_task(self._namer.answer())
                if self._settings.scrub_interval:
                    group.create_task(self._inspector.scrub(self._settings.scrub_interval))
                if self._settings.conduct:
                    group.create_task(self._stand())
        finally:
            await listener.cleanup()

    async def _follow_services(self) -> None:
        """Follow for ever; a store that refuses is asked again, for a role may be given back."""
        while True:
            try:
                await self._take_wishes()
            except RestoredBackup as cause:
                self._store_problem = cause.message
                _log.error("the store was restored or replaced: nothing moves", cause=cause.message)
                await self._acceptance.wait(self._open_fresh)
                await self._until_gateway_follows()
                raise RestoreAccepted from cause
            except StoreError as cause:
                self._store_problem = cause.message
                _log.error("the services cannot be followed", cause=cause.message)
            await asyncio.sleep(_RETRY_S)

    async def _until_gateway_follows(self) -> None:
        """Wait until the gateway acts on the accepted store's routes too, for a while at most.

        What the routes before served is withdrawn by the next run of the agent: by then no request
        may want it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATEWAY_FOLLOWS_S):
                while True:
                    heard = self._link.heard
                    if heard is None or heard.is_connected:
                        break
                    await asyncio.sleep(_LOOK_S)

    async def _take_wishes(self) -> None:
        updates = self._store.watch(self._keys.services)
        async with contextlib.aclosing(updates):  # type: ignore[type-var]
            async for update in updates:
                if not update.is_live:
                    self._store_problem = "the store does not answer"
                    continue
                self._store_problem = ""
                self._acceptance.know(self._fingerprint())
                fleet = self._wishes.read(update.entries)
                self._draining.follow(fleet, update.entries)
                self._reconciler.want(fleet)
                self._statistics.watch(fleet)
                self._collecting.follow(fleet)
                for problem in self._wishes.new_problems:
                    _log.error("unreadable", problem=problem)

    async def _follow_requests(self) -> None:
        """Take what operators ask, for ever; a node serves on where it may not read that."""
        while True:
            try:
                updates = self._store.watch(self._keys.requests)
                async with contextlib.aclosing(updates):  # type: ignore[type-var]
                    async for update in updates:
                        if update.is_live:
                            requests = read_requests(update.entries, self._settings.node)
                            self._inspector.ask(requests)
                            self._collecting.ask(requests)
                            self._hasher.ask(requests)
                            self._namer.ask(requests)
                            self._draining.ask(requests)
            except StoreError as cause:
                self._draining.refuse()
                _log.warning("requests cannot be followed", cause=cause.message)
            await asyncio.sleep(_RETRY_S)

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
