"""Services in direct mode on this node: what the engine holds under their own names, and is to.

Nothing is remembered: what is held is what the engine lists, and a probe counts until the name is
given to another. See `vctl_plans.direct` for what follows from it.
"""

from collections.abc import Callable, Mapping

from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.port import Description
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.holdings import own, proofs
from vctl_agent.local import GatewayState
from vctl_agent.probed import Probed
from vctl_agent.tries import Tries
from vctl_agent.work import Work, key, occasion
from vctl_plans import direct
from vctl_plans.node_machine import Action, Failure, Verdict
from vctl_plans.phase import NodePhase
from vctl_plans.release import Release
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Service

Judged = list[tuple[Service, Release, Verdict]]


class DirectMode:
    """Looks at disk and engine, judges, and starts the next thing.

    Args:
        artifacts: The node's artifacts.
        probed: What was probed.
        tries: What was tried in vain.
        doing: What is being done, by what it changes.
        start: Has something done; it is reported under the phase meanwhile.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        probed: Probed,
        tries: Tries,
        *,
        doing: Mapping[str, NodePhase],
        start: Callable[[Work, NodePhase], None],
    ) -> None:
        self._artifacts = artifacts
        self._probed = probed
        self._tries = tries
        self._doing = doing
        self._start = start

    def judge(self, service: Service, watch: EngineWatch) -> Judged:
        """Return where each release of *service* is, and start what is to be done."""
        return [
            (service, release, self._judge(service, release, watch))
            for release in self.of_interest(service, watch.latest)
        ]

    def _judge(self, service: Service, release: Release, watch: EngineWatch) -> Verdict:
        """Judge one release; all of a service's take turns in one name."""
        engine, name = watch.latest, service.name
        doing = self._doing.get(own(release))
        if doing and doing is not NodePhase.READY:
            return Verdict(doing)
        verdict = direct.assess(self.facts(service, release, engine))
        is_of_engine = verdict.action not in {Action.NONE, Action.STAGE}
        if not engine and (is_of_engine or verdict.phase is NodePhase.READY):
            return Verdict(NodePhase.FAILED, reason=watch.problem)
        if verdict.action is Action.NONE or doing:  # what is ready is only probed again
            return verdict
        if is_of_engine and name in self._doing:
            return Verdict(verdict.phase)  # once the other one is done
        names = [own(release), name] if is_of_engine else [own(release)]
        on = occasion(service, engine, release)
        self._start(Work(verdict.action, release, names, on, under=name), verdict.phase)
        return verdict

    def of_interest(self, service: Service, engine: Description | None) -> list[Release]:
        """Return the releases that are wanted, may go, or are held."""
        numbers = set(wanted(service.route, service.rollout))
        numbers |= set(service.rollout.unload) if service.rollout else set()
        numbers |= {n for n, release in service.releases.items() if self._is_held(release, engine)}
        return [service.releases[n] for n in sorted(numbers) if n in service.releases]

    def facts(self, service: Service, release: Release, engine: Description | None) -> direct.Facts:
        """Return what is known of *release*."""
        is_held = self._is_held(release, engine)
        at, names = engine.incarnation if engine else "", proofs(service, release)
        is_probed = is_held and all(self._probed.has(at, name) for name in names)
        return direct.Facts(
            is_wanted=release.number in wanted(service.route, service.rollout),
            is_active=release.number == self._turn(service, engine),
            is_staged=all(self._artifacts.is_staged(made.root) for made in release.staged.values()),
            is_held=is_held,
            is_probed=is_probed,
            is_due=is_probed and not all(self._probed.is_current(at, name) for name in names),
            is_coming=_is_coming(service, release),
            failure=self._failure(service, release, engine),
            suspect=engine.problem if engine else "",
        )

    def _turn(self, service: Service, engine: Description | None) -> int:
        """Return the release to hold: the route's, or what served before where that was refused."""
        route = service.current_route
        number, before = direct.active(route), direct.fallback(route)
        release = service.releases.get(number)
        failure = self._failure(service, release, engine) if release and before else None
        return before if failure and failure.is_permanent else number

    def _failure(
        self, service: Service, release: Release, engine: Description | None
    ) -> Failure | None:
        on = occasion(service, engine, release)
        return self._tries.failure(key(release), on, is_wanted=True, is_resident=False)

    def _is_held(self, release: Release, engine: Description | None) -> bool:
        if engine is None or release.adapter is None:
            return False
        return engine.has(release.service, str(self._artifacts.path(release.adapter.root)))


def _is_coming(service: Service, release: Release) -> bool:
    rollout = service.rollout if service.is_running else None
    return rollout is not None and release.number == (rollout.back_to or rollout.to_release)


def acted_on(heard: GatewayState | None, verdicts: Judged) -> dict[str, int]:
    """Return the routes that are acted on: by the gateway, and in direct mode by the engine.

    An engine's is one that it was seen to act on; what a gateway says of such a service is no word.
    """
    is_direct = {service.name for service, _, _ in verdicts if service.is_direct}
    by_gateway = heard.routes.items() if heard else ()
    by_engine = {
        service.name: service.route_revision
        for service, release, verdict in verdicts
        if service.is_direct
        and release.number == direct.active(service.current_route)
        and verdict.phase is NodePhase.READY
    }
    return {name: at for name, at in by_gateway if name not in is_direct} | by_engine
