"""The agent's program: settings, signals, and the tasks that make an agent.

Ended by SIGTERM or SIGINT, it leaves engine and gateway as they are: the gateway goes on serving on
the agent's last word, and the next agent adopts what it finds. Its lease is given back, so that the
fleet sees at once that it is gone.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import structlog

from vctl_agent import admin, election, log
from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.candidate import Candidate
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.engines.opening import open_engine
from vctl_agent.engines.port import Engine
from vctl_agent.engines.suspect import Suspect
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.golden import GoldenReader
from vctl_agent.gpu import Gpus
from vctl_agent.hasher import Hasher
from vctl_agent.hook import Hook
from vctl_agent.inspector import Inspector
from vctl_agent.presence import Presence
from vctl_agent.probed import Probed
from vctl_agent.prometheus import Where
from vctl_agent.reconciler import Reconciler
from vctl_agent.reporting import StatisticsWriter
from vctl_agent.requests import read_requests
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
from vctl_plans.sources import Credentials, netrc_of
from vctl_plans.store.port import Store

_USAGE = 2
_FAILED = 1
_RETRY_S = 2.0

_log = structlog.get_logger(__name__)


class Agent:
    """All parts of one agent.

    Args:
        settings: Its settings.
        store: The store, open.
        engine: The engine's adapter.
    """

    def __init__(self, settings: Settings, store: Store, engine: Engine) -> None:
        self._settings = settings
        self._store = store
        self._keys = Keys(settings.fleet, settings.prefix)
        self._boot_id = uuid.uuid4().hex
        self._crashpoints = Crashpoints(settings.crash_at)
        self._metrics = admin.Metrics()
        self._wishes = Wishes(self._keys)
        self._last_report: NodeReport | None = None
        self._store_problem = "the store has not answered yet"
        state = settings.state
        artifacts = ArtifactStore(
            state,
            settings.allowed_root,
            allowed_sources=settings.allowed_source,
            credentials=Credentials(settings.source_token_file, netrc_of(os.environ)),
        )
        artifacts.open()
        probed = Probed(state / "probed.json")
        probed.open()
        suspect = Suspect(state / "suspect.json")
        suspect.open()
        watch = EngineWatch(engine, self._wake, suspect=suspect, on_facts=self._on_facts)
        application = Application(
            state,
            artifacts,
            incarnation=lambda: watch.incarnation,
            crashpoints=self._crashpoints,
            hook=_hook(settings),
        )
        application.open()
        executor = Executor(
            engine=engine,
            golden=GoldenReader(store, self._keys),
            watch=watch,
            artifacts=artifacts,
            probed=probed,
            application=application,
            crashpoints=self._crashpoints,
        )
        self._artifacts = artifacts
        self._engine_watch = watch
        self._inspector = Inspector(artifacts, self._known_releases, self._wake)
        self._hasher = Hasher(artifacts.describe, self._wake)
        self._statistics = self._made_statistics()
        self._link = GatewayLink(
            str(settings.socket), self._wake, on_statistics=self._statistics.take
        )
        self._reconciler = Reconciler(
            node=settings.node,
            boot_id=self._boot_id,
            engine_url=settings.engine_url,
            engine=watch,
            artifacts=artifacts,
            probed=probed,
            application=application,
            executor=executor,
            on_report=self._on_report,
            checks=lambda: self._inspector.checks,
            hashed=lambda: self._hasher.hashed,
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

    def _wake(self) -> None:
        self._reconciler.wake()

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
                group.create_task(self._link.run())
                group.create_task(self._follow_services())
                group.create_task(self._reconciler.run(self._link))
                group.create_task(self._presence.keep_record())
                group.create_task(self._presence.write_reports())
                group.create_task(self._statistics.run())
                group.create_task(self._follow_requests())
                group.create_task(self._inspector.answer())
                group.create_task(self._hasher.answer())
                group.create_task(sweep(self._artifacts, self._reconciler.wanted_roots))
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
                await asyncio.Event().wait()
            except StoreError as cause:
                self._store_problem = cause.message
                _log.error("the services cannot be followed", cause=cause.message)
            await asyncio.sleep(_RETRY_S)

    async def _take_wishes(self) -> None:
        updates = self._store.watch(self._keys.services)
        async with contextlib.aclosing(updates):  # type: ignore[type-var]
            async for update in updates:
                if not update.is_live:
                    self._store_problem = "the store does not answer"
                    continue
                self._store_problem = ""
                fleet = self._wishes.read(update.entries)
                self._reconciler.want(fleet)
                self._statistics.watch(fleet)
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
                            self._hasher.ask(requests)
            except StoreError as cause:
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


def _hook(settings: Settings) -> Hook | None:
    if not settings.hook:
        return None
    return Hook(settings.hook, timeout_s=settings.hook_timeout, environment=os.environ)


def lock_state(state: Path) -> int:
    """Take the state directory for this process; the lock ends with it.

    Raises:
        VctlError: Another agent has it.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        os.close(fd)
        raise VctlError(
            f"{state} belongs to another agent that is running", hint="give each its own --state"
        ) from cause
    return fd


async def _main(settings: Settings | ConductorSettings) -> None:
    if isinstance(settings, ConductorSettings):
        await _conduct_only(settings)
    else:
        await _serve_node(settings)


async def _serve_node(settings: Settings) -> None:
    from vctl_plans.store.etcd import open_store  # noqa: PLC0415  gRPC loads here, after the lock

    lock = lock_state(settings.state)
    store = open_store(settings.store)
    engine = open_engine(settings)
    try:
        await _until_told(Agent(settings, store, engine).run())
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
    try:
        asyncio.run(_main(settings))
    except* (VctlError, OSError) as group:
        problems += causes(group)
    for said in problems:
        _log.error("cannot go on", cause=said)
    if problems:
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
