"""One node, level-triggered: compare what is wanted with what is there, and do the next thing.

A cycle reads the latest of everything (the fleet's wishes, the engine, the gateway), lets
`node_machine.assess` judge each release, starts what is to be done, tells the gateway what it may
serve, and makes the report. It waits for nothing, so neither a slow engine nor a long copy delays
the word that a route was seen.
"""

import asyncio
import time
from collections.abc import Callable

from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.basechange import BaseChange
from vctl_agent.directmode import DirectMode, Judged
from vctl_agent.doing import Doing
from vctl_agent.draining import Draining
from vctl_agent.engines.port import Description
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.executor import Executor
from vctl_agent.gatewaylink import GatewayLink
from vctl_agent.gpu import Memory
from vctl_agent.holdings import (
    Held,
    Holdings,
    changed,
    goes_with_listed,
    in_flight,
    is_offered,
    own,
)
from vctl_agent.local import GatewayState
from vctl_agent.places import Places
from vctl_agent.probed import Probed
from vctl_agent.telling import Telling, ThisNode
from vctl_agent.tries import Key, Tries
from vctl_agent.work import Work, occasion
from vctl_plans.base import has_place, is_apart
from vctl_plans.fuse import spared_in_s
from vctl_plans.node import NodeReport
from vctl_plans.node_machine import Action, Facts, Verdict, assess
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Fleet, Service

_LONGEST_SLEEP_S = 5.0


class Reconciler:
    """Brings this node to what the fleet wants of it.

    Args:
        who: The node, and this run of its agent.
        engine: The engine's latest description.
        artifacts: The node's artifacts.
        probed: What was probed.
        application: What the application was handed.
        executor: Does things.
        on_report: Given every report that differs from the one before.
        completed: Adds to a report what others of the agent have to say in it.
        draining: What an operator wants of the node as a whole; None: nobody can.
        has_gateway: Whether this node has a gateway.
        memory: What a GPU tells of its memory.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        who: ThisNode,
        *,
        engine: EngineWatch,
        artifacts: ArtifactStore,
        probed: Probed,
        application: Application,
        executor: Executor,
        on_report: Callable[[NodeReport], None],
        completed: Callable[[NodeReport], NodeReport] = lambda report: report,
        draining: Draining | None = None,
        has_gateway: bool = True,
        memory: Callable[[], Memory | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node = who.name
        self._engine = engine
        self._draining = draining
        self._has_gateway = has_gateway
        self._clock = clock
        self._wakened = asyncio.Event()
        self._fleet: Fleet | None = None
        self._drain_began: dict[Key, float] = {}
        self._tries = Tries(clock)
        self._doing = doing = Doing(executor, self._tries, self.wake)
        self.unload_orphan = doing.unload_orphan
        self._base = BaseChange(node, artifacts=artifacts, swap=executor.swap_base, clock=clock)
        self._holdings = Holdings(artifacts, probed, application, self._base.is_held)
        self._places = Places(
            node, doing=doing.phases, is_hopeless=self._is_hopeless, memory=memory
        )
        self._direct = DirectMode(
            artifacts, probed, self._tries, doing=doing.phases, start=doing.start
        )
        self._telling = Telling(
            who, self._holdings, percent=doing.percent, completed=completed, on_report=on_report
        )
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
            await self._doing.stop()

    def cycle(self, link: GatewayLink) -> float:
        """Look, judge, start what is to be done, tell, report; return seconds to the next look."""
        if self._fleet is None:
            return _LONGEST_SLEEP_S
        engine = self._engine.latest
        self._base.look(self._fleet, engine)
        self._places.look(self._fleet, engine)
        verdicts = self._verdicts(self._fleet, engine, link.heard)
        if engine and (self._draining is None or self._draining.is_known):
            state = self._telling.to_gateway(self._fleet, verdicts, engine)
            link.tell(self._draining.offered(state, link.heard) if self._draining else state)
        self._telling.report(self._fleet, verdicts, engine, link=link, base=self._base.held_root)
        if self._base.is_due(link.heard):
            self._doing.run(self._change_base())
        self.unserved = self._unserved(verdicts)
        waits = [self._base.wait_s(), *(verdict.wake_s for _, _, verdict in verdicts)]
        return max(0.05, min([_LONGEST_SLEEP_S, *(s for s in waits if s is not None)]))

    def _verdicts(
        self, fleet: Fleet, engine: Description | None, heard: GatewayState | None
    ) -> Judged:
        """Judge every release of interest, and start the next thing of each."""
        verdicts: Judged = []
        for service in fleet.services.values():
            if service.is_direct:
                verdicts += self._direct.judge(service, self._engine)
                continue
            for release in self._holdings.of_interest(service, engine):
                verdict = self._judge(service, release, engine, heard)
                verdicts.append((service, release, verdict))
        return verdicts

    def _unserved(self, verdicts: Judged) -> str:
        return "; ".join(
            f"release {release.number} of {service.name} is {verdict.phase}"
            for service, release, verdict in verdicts
            if release.number in service.current_route.serving
            and has_place(service, release.number, self._node)
            and verdict.phase is not NodePhase.READY
        )

    def _facts(
        self,
        service: Service,
        release: Release,
        held: Held,
        engine: Description | None,
        *,
        heard: GatewayState | None,
    ) -> Facts:
        rollout = service.rollout
        is_wanted = release.number in wanted(service.route, rollout)
        goes = is_apart(service, release.number, self._node)
        is_resident = held.is_whole if is_wanted and not goes else held.is_here
        is_listed = goes_with_listed(service, release, held) or bool(service.ejected)
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
            is_due=held.is_due,
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
        self,
        service: Service,
        release: Release,
        engine: Description | None,
        heard: GatewayState | None,
    ) -> Verdict:
        """Return where the release is, and start the next thing unless something is being done."""
        held = self._holdings.of(service, release, engine)
        facts = self._facts(service, release, held, engine, heard=heard)
        if facts.is_wanted and not self._has_gateway:
            return _NO_GATEWAY
        doing = self._doing.phases.get(own(release)) or self._doing.phases.get(release.engine_name)
        if doing and doing is not NodePhase.READY:
            return Verdict(doing)
        if not engine and facts.may_unload and not _has_ended(service):
            return Verdict(NodePhase.DRAINING, reason=self._engine.problem)  # none knows if it went
        verdict = assess(facts)
        if verdict.action not in {Action.NONE, Action.STAGE} and not engine:
            return Verdict(NodePhase.FAILED, reason=self._engine.problem)
        if verdict.action is Action.NONE or doing:  # what is ready is only probed again
            return verdict
        is_foreign = release.adapter is not None and bool(release.adapter.adopted)
        work = Work(
            verdict.action,
            release,
            changed(verdict.action, release, held),
            occasion(service, engine, release),
            keeps_adapter=held.is_shared or is_foreign,
        )
        self._doing.start(work, verdict.phase)
        return verdict

    async def _change_base(self) -> None:
        await self._base.change()
        self.wake()


_NO_GATEWAY = Verdict(
    NodePhase.FAILED,
    reason="this node has no gateway (--gateway none): only services in direct mode are served",
    is_permanent=True,
)


def _has_ended(service: Service) -> bool:
    return service.rollout is not None and service.rollout.phase.is_terminal
