"""One node, level-triggered: compare what is wanted with what is there, and do the next thing.

A cycle reads the latest of everything (the fleet's wishes, the engine, the gateway), lets
`node_machine.assess` judge each release, starts what is to be done, tells the gateway what it may
serve, and makes the report. It waits for nothing, so neither a slow engine nor a long copy delays
the word that a route was seen. At most one action a release, and one that changes an adapter, runs
at a time: releases of one root share their adapter in the engine, and nothing else.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.basechange import BaseChange
from vctl_agent.directmode import DirectMode, acted_on
from vctl_agent.draining import Draining
from vctl_agent.engines.port import Description
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.gpu import Memory
from vctl_agent.holdings import Held, Holdings, changed, in_flight, is_offered, own
from vctl_agent.local import AgentState, GatewayState, ReadyRelease
from vctl_agent.places import Places
from vctl_agent.placing import unmanaged
from vctl_agent.probed import Probed
from vctl_agent.tries import Key, Tries
from vctl_agent.watched import report_interval_s, watched
from vctl_agent.work import Work, attempt, occasion
from vctl_plans.base import has_place, is_apart
from vctl_plans.errors import VctlError
from vctl_plans.fuse import spared_in_s
from vctl_plans.inspection import Checks, Hashed, Named
from vctl_plans.node import NodeReport, ReleaseReport
from vctl_plans.node_machine import Action, Facts, Verdict, assess
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Fleet, Service

_LONGEST_SLEEP_S = 5.0
_MEMORY_STEP = 0.02
"""Of the engine's memory: a smaller change is not reported."""

_KV_STEPS = 20

_log = structlog.get_logger(__name__)


class Reconciler:
    """Brings this node to what the fleet wants of it.

    Args:
        node: The node's name.
        boot_id: This run of the agent.
        engine_url: Where the gateway finds the engine.
        engine: The engine's latest description.
        artifacts: The node's artifacts.
        probed: What was probed.
        application: What the application was handed.
        executor: Does things.
        on_report: Given every report that differs from the one before.
        checks: What was found when artifacts were hashed again.
        completed: Adds to a report what others of the agent have to say in it.
        hashed: What was found at sources that an operator asked about.
        named: What was answered to those who asked for a service's own name.
        draining: What an operator wants of the node as a whole; None: nobody can.
        has_gateway: Whether this node has a gateway.
        memory: What a GPU tells of its memory.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        node: str,
        boot_id: str,
        engine_url: str,
        engine: EngineWatch,
        artifacts: ArtifactStore,
        probed: Probed,
        application: Application,
        executor: Executor,
        on_report: Callable[[NodeReport], None],
        checks: Callable[[], tuple[Checks, ...]] = tuple,
        completed: Callable[[NodeReport], NodeReport] = lambda report: report,
        hashed: Callable[[], tuple[Hashed, ...]] = tuple,
        named: Callable[[], tuple[Named, ...]] = tuple,
        draining: Draining | None = None,
        has_gateway: bool = True,
        memory: Callable[[], Memory | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._boot_id = boot_id
        self._engine_url = engine_url
        self._engine = engine
        self._base = BaseChange(node, artifacts=artifacts, swap=executor.swap_base, clock=clock)
        self._holdings = Holdings(artifacts, probed, application, self._base.is_held)
        self._executor = executor
        self._on_report = on_report
        self._checks = checks
        self._completed = completed
        self._hashed = hashed
        self._named = named
        self._draining = draining
        self._has_gateway = has_gateway
        self._clock = clock
        self._wakened = asyncio.Event()
        self._fleet: Fleet | None = None
        self._doing: dict[str, NodePhase] = {}  # by what is changed, see `changed`
        self._fetched: dict[Key, int] = {}  # per cent of a long fetch, by release
        self._places = Places(node, doing=self._doing, is_hopeless=self._is_hopeless, memory=memory)
        self._tasks: set[asyncio.Task[None]] = set()
        self._tries = Tries(clock)
        self._direct = DirectMode(
            artifacts, probed, self._tries, doing=self._doing, start=self._start
        )
        self._drain_began: dict[Key, float] = {}
        self._report: NodeReport | None = None
        self._free_memory: float | None = None  # as last reported
        self.unserved = ""  # what of the traffic cannot be served here, and why

    def wake(self) -> None:
        """Have another cycle run soon."""
        self._wakened.set()

    def want(self, fleet: Fleet) -> None:
        """Take the fleet's newest wishes."""
        self._fleet = fleet
        self.wake()

    @property
    def fleet(self) -> Fleet | None:
        """The fleet's newest wishes; None: they were never told."""
        return self._fleet

    def releases(self) -> list[Release]:
        """Return every release that is known, of all services."""
        services = self._fleet.services.values() if self._fleet else ()
        return [release for service in services for release in service.releases.values()]

    def wanted_roots(self) -> set[str] | None:
        """Return the roots of what the fleet wants here; None: it is not known yet."""
        if self._fleet is None:
            return None
        return {
            made.root
            for service in self._fleet.services.values()
            for number in wanted(service.route, service.rollout)
            if number in service.releases
            for made in service.releases[number].staged.values()
        }

    async def run(self, link: GatewayLink) -> None:
        """Run cycles until cancelled; then stop what is being done."""
        try:
            while True:
                sleep_s = self.cycle(link)
                try:
                    async with asyncio.timeout(sleep_s):
                        await self._wakened.wait()
                except TimeoutError:
                    pass
                self._wakened.clear()
        finally:
            self._executor.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cycle(self, link: GatewayLink) -> float:
        """Look, judge, start what is to be done, tell, report; return seconds to the next look."""
        if self._fleet is None:
            return _LONGEST_SLEEP_S
        engine = self._engine.latest
        self._base.look(self._fleet, engine)
        self._places.look(self._fleet, engine)
        verdicts: list[tuple[Service, Release, Verdict]] = []
        for service in self._fleet.services.values():
            if service.is_direct:
                verdicts += self._direct.judge(service, self._engine)
                continue
            for release in self._holdings.of_interest(service, engine):
                verdict = self._judge(service, release, engine, link)
                verdicts.append((service, release, verdict))
        if engine and (self._draining is None or self._draining.is_known):
            link.tell(self._agent_state(verdicts, link.heard))
        self._make_report(verdicts, engine, link)
        if self._base.is_due(link.heard):
            self._run(self._change_base())
        self.unserved = "; ".join(
            f"release {release.number} of {service.name} is {verdict.phase}"
            for service, release, verdict in verdicts
            if release.number in service.current_route.serving
            and has_place(service, release.number, self._node)
            and verdict.phase is not NodePhase.READY
        )
        waits = [self._base.wait_s(), *(verdict.wake_s for _, _, verdict in verdicts)]
        return max(0.05, min([_LONGEST_SLEEP_S, *(s for s in waits if s is not None)]))

    def _facts(
        self,
        service: Service,
        release: Release,
        held: Held,
        engine: Description | None,
        heard: GatewayState | None,
    ) -> Facts:
        rollout = service.rollout
        is_wanted = release.number in wanted(service.route, rollout)
        goes = is_apart(service, release.number, self._node)
        is_resident = held.is_whole if is_wanted and not goes else held.is_here
        is_listed = rollout is not None and release.number in rollout.unload
        is_listed = is_listed or bool(service.ejected)
        may_unload = is_listed and not is_wanted and held.may_be_here
        key = (service.name, release.number)
        failure = self._base.failure(release) or self._tries.failure(
            key,
            occasion(service, engine, release),
            is_wanted=is_wanted and not goes,
            is_resident=is_resident,
        )
        return Facts(
            is_wanted=is_wanted,
            may_unload=may_unload,
            is_staged=self._holdings.is_staged(release),
            is_resident=is_resident,
            is_on_base=engine is None or self._base.is_on_base(release),
            is_apart=goes,
            no_place=self._places.problem(service, release) if is_wanted and not goes else "",
            is_probed=held.is_probed,
            is_offered=heard is not None and is_offered(service, release, heard, held),
            in_flight=in_flight(service, release, heard, held) if heard else None,
            draining_s=self._draining_s(key, may_unload=may_unload or goes),
            drain_limit_s=rollout.drain_s if rollout else 0.0,
            suspect=engine.problem if engine else "",
            failure=failure,
            spared_in_s=spared_in_s(
                service.fuse,
                release,
                failure,
                stable=service.current_route.stable,
                node=self._node,
            ),
        )

    def _is_hopeless(self, service: Service, release: Release) -> bool:
        """Whether what was tried of a release was refused for good."""
        on = occasion(service, self._engine.latest, release)
        found = self._base.failure(release) or self._tries.failure(
            (service.name, release.number), on, is_wanted=True, is_resident=False
        )
        return found is not None and found.is_permanent

    def _draining_s(self, key: Key, *, may_unload: bool) -> float:
        if not may_unload:
            self._drain_began.pop(key, None)
            return 0.0
        return self._clock() - self._drain_began.setdefault(key, self._clock())

    def _judge(
        self, service: Service, release: Release, engine: Description | None, link: GatewayLink
    ) -> Verdict:
        """Return where the release is, and start the next thing unless something is being done."""
        held = self._holdings.of(service, release, engine)
        facts = self._facts(service, release, held, engine, link.heard)
        if facts.is_wanted and not self._has_gateway:
            return _NO_GATEWAY
        doing = self._doing.get(own(release)) or self._doing.get(release.engine_name)
        if doing:
            return Verdict(doing)
        if not engine and facts.may_unload and not _has_ended(service):
            return Verdict(NodePhase.DRAINING, reason=self._engine.problem)  # none knows if it went
        verdict = assess(facts)
        if verdict.action is Action.NONE:
            return verdict
        if verdict.action is not Action.STAGE and not engine:
            return Verdict(NodePhase.FAILED, reason=self._engine.problem)
        is_foreign = release.adapter is not None and bool(release.adapter.adopted)
        work = Work(
            verdict.action,
            release,
            changed(verdict.action, release, held),
            occasion(service, engine, release),
            keeps_adapter=held.is_shared or is_foreign,
        )
        self._start(work, verdict.phase)
        return verdict

    def _start(self, work: Work, phase: NodePhase) -> None:
        self._doing.update(dict.fromkeys(work.names, phase))
        self._run(self._do(work))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change_base(self) -> None:
        await self._base.change()
        self.wake()

    async def _do(self, work: Work) -> None:
        key, action, on = work.key, work.action, work.occasion

        def on_phase(phase: NodePhase, fetched_percent: int) -> None:
            self._doing.update(dict.fromkeys(work.names, phase))
            self._fetched[key] = fetched_percent or self._fetched.get(key, 0)
            self.wake()

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
                self._doing.pop(name, None)
            self.wake()

    def _agent_state(
        self, verdicts: list[tuple[Service, Release, Verdict]], heard: GatewayState | None
    ) -> AgentState:
        engine, fleet = self._engine.latest, self._fleet or Fleet()
        ready = tuple(
            ReadyRelease(
                service=service.name,
                number=release.number,
                digest=release.digest,
                model=engine.model(release.engine_name) if engine else release.engine_name,
                prompt=self._holdings.applied_prompt(release),
            )
            for service, release, verdict in verdicts
            if verdict.phase is NodePhase.READY and not service.is_direct
        )
        return AgentState(
            boot_id=self._boot_id,
            engine_url=self._engine_url,
            ready=self._draining.offered(ready, heard) if self._draining else ready,
            watched=watched(fleet),
            report_interval_s=report_interval_s(fleet),
        )

    def _make_report(
        self,
        verdicts: list[tuple[Service, Release, Verdict]],
        engine: Description | None,
        link: GatewayLink,
    ) -> None:
        report = NodeReport(
            node=self._node,
            boot_id=self._boot_id,
            incarnation=engine.incarnation if engine else "",
            base=self._base.held_root,
            releases=tuple(
                ReleaseReport(
                    service=service.name,
                    number=release.number,
                    digest=release.digest,
                    phase=verdict.phase,
                    attempt=attempt(service),
                    reason=verdict.reason,
                    is_permanent=verdict.is_permanent,
                    fetched_percent=self._percent(release, verdict.phase),
                    fails_probe=verdict.fails_probe,
                    probe=self._holdings.measured(service, release, engine),
                )
                for service, release, verdict in verdicts
                if verdict.phase is not NodePhase.UNLOADED
            ),
            routes=acted_on(link.heard, verdicts),
            gateway_ok=link.is_current,
            free_memory=self._free(engine),
            kv_used=self._kv_used(engine),
            adapters=len(engine.adapters) if engine else None,
            problem=engine.problem if engine else "",
            checks=self._checks(),
            hashed=self._hashed(),
            named=self._named(),
            drain=self._draining.answer(link.heard) if self._draining else None,
            unmanaged=unmanaged(engine, self._fleet.services.values() if self._fleet else ()),
        )
        report = self._completed(report)
        if report != self._report:
            self._report = report
            self._on_report(report)

    def _percent(self, release: Release, phase: NodePhase) -> int:
        is_fetching = phase is NodePhase.FETCHING
        return self._fetched.get((release.service, release.number), 0) if is_fetching else 0

    def _kv_used(self, engine: Description | None) -> float | None:
        """Return the share of the KV cache in use, while a rollout asks: else each step is a write.

        In steps, and never less than it is.
        """
        services = self._fleet.services.values() if self._fleet else ()
        asks = any(s.is_running and s.rollout and s.rollout.asks_kv for s in services)
        if not asks or engine is None or engine.kv_used is None:
            return None
        return min(1.0, math.ceil(engine.kv_used * _KV_STEPS) / _KV_STEPS)

    def _free(self, engine: Description | None) -> float | None:
        """Return the free share of memory; a small change is no news, and would be a write."""
        now, before = engine.free_memory if engine else None, self._free_memory
        if now is None or before is None or abs(now - before) >= _MEMORY_STEP:
            self._free_memory = now
        return self._free_memory


_NO_GATEWAY = Verdict(
    NodePhase.FAILED,
    reason="this node has no gateway (--gateway none): only services in direct mode are served",
    is_permanent=True,
)


def _has_ended(service: Service) -> bool:
    return service.rollout is not None and service.rollout.phase.is_terminal
