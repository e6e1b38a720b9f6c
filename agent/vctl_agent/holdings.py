"""What of a release is on this node, and what of that is its own.

Releases of one root share their adapter in the engine, and one directory on disk; each has its own
file and its own word to the application. So a release is whole when all of its parts are here, and
it goes with what no other release needs.
"""

from collections.abc import Callable

import msgspec

from vctl_agent.application import Application
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.port import Description
from vctl_agent.local import GatewayState
from vctl_agent.placing import directory
from vctl_agent.probed import BASE, Probed, golden_name
from vctl_plans.golden import golden_of
from vctl_plans.node_machine import Action
from vctl_plans.release import Release
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Service


class Held(msgspec.Struct, frozen=True):
    """What is here of one release, just now."""

    is_shared: bool  # a release that is wanted has the same adapter: it stays
    has_adapter: bool  # the engine lists it, or there is none to list
    is_whole: bool  # that, and the application has its part
    is_probed: bool  # whole, and probed in this run of the engine, by its golden prompts too
    is_due: bool  # that, and its caches were dropped since
    is_handed_over: bool  # the application has something of it
    is_loaded: bool  # the engine lists an adapter of it

    @property
    def is_here(self) -> bool:
        """Whether anything of it would go with it."""
        return (self.is_loaded and not self.is_shared) or self.is_handed_over

    @property
    def may_be_here(self) -> bool:
        """Whether that could be so, also while the engine does not tell."""
        return not self.is_shared or self.is_handed_over


class Holdings:
    """Looks at disk, engine and application."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        probed: Probed,
        application: Application,
        has_base: Callable[[Release], bool],
    ) -> None:
        self._artifacts = artifacts
        self._has_base = has_base
        self._probed = probed
        self._application = application

    def of(self, service: Service, release: Release, engine: Description | None) -> Held:
        """Return what is here of *release*.

        A release without an adapter is served by the base alone. An adapter of another base is not
        the release's: one name may stand for both, never at a time.
        """
        is_of_base = engine is not None and self._has_base(release)
        has_adapter = is_of_base and engine is not None and self._has_adapter(release, engine)
        is_whole = has_adapter and self._application.has(release)
        at, names = engine.incarnation if engine else "", proofs(service, release)
        is_probed = is_whole and all(self._probed.has(at, name) for name in names)
        return Held(
            is_shared=is_shared(service, release),
            has_adapter=has_adapter,
            is_whole=is_whole,
            is_probed=is_probed,
            is_due=is_probed and not all(self._probed.is_current(at, name) for name in names),
            is_handed_over=release.number in self._application.held(service.name),
            is_loaded=has_adapter
            and release.adapter is not None
            and not release.adapter.adopted,  # what vctl did not load, it does not unload
        )

    def is_staged(self, release: Release) -> bool:
        """Whether every component of *release* lies here, verified by this process."""
        return all(self._artifacts.is_staged(made.root) for made in release.staged.values())

    def applied_prompt(self, release: Release) -> str:
        """Return the directory of the prompt that the gateway applies; empty: none."""
        return self._application.applied_prompt(release)

    def of_interest(self, service: Service, engine: Description | None) -> list[Release]:
        """Return the releases that are wanted, may be unloaded, or are here in whole or part."""
        loaded = {resident.name for resident in engine.adapters} if engine else set()
        numbers = set(wanted(service.route, service.rollout))
        numbers |= set(service.rollout.unload) if service.rollout else set()
        numbers |= {n for n, release in service.releases.items() if release.engine_name in loaded}
        numbers |= self._application.held(service.name)
        return [service.releases[n] for n in sorted(numbers) if n in service.releases]

    def _has_adapter(self, release: Release, engine: Description) -> bool:
        if not release.adapter:
            return True
        return engine.has(release.engine_name, directory(self._artifacts, release.adapter))

    def measured(self, service: Service, release: Release, engine: Description | None) -> str:
        """Return what was measured when *release* was probed in this run of the engine."""
        notes = (
            self._probed.note(engine.incarnation, name) if engine else ""
            for name in proofs(service, release)
        )
        return "; ".join(filter(None, notes))


def proofs(service: Service, release: Release) -> list[str]:
    """Return the names under which what makes *release* ready is noted, once it was probed."""
    golden = golden_of(release, service.rollout)
    names = [release.engine_name or BASE]
    return [*names, golden_name(release.engine_name, release.digest, golden)] if golden else names


def is_shared(service: Service, release: Release) -> bool:
    """Whether a release that is wanted, and not this one, has the same adapter."""
    if not release.adapter:
        return False
    needed = wanted(service.route, service.rollout) - {release.number}
    adapters = (service.releases[n].adapter for n in needed if n in service.releases)
    return any(adapter and adapter.root == release.adapter.root for adapter in adapters)


def goes_with_listed(service: Service, release: Release, held: Held) -> bool:
    """Whether the unload list names the release, or another of the same adapter and nothing beside.

    The list is made of what nodes reported. A node reports a release whose adapter is another's as
    well only once the other is wanted no more, which may be a moment after the list was written.
    Were it still offered to the gateway then, its adapter would wait for the drain deadline.
    """
    listed = service.rollout.unload if service.rollout else ()
    if release.number in listed:
        return True
    roots = {
        made.root for n in listed if (made := getattr(service.releases.get(n), "adapter", None))
    }
    return bool(release.adapter and release.adapter.root in roots and not held.is_handed_over)


def own(release: Release) -> str:
    """Return the name of what only this release has; no adapter's name holds a slash."""
    return f"{release.service}/{release.number}"


def is_adapter(name: str) -> bool:
    """Whether a name of what is changed is an adapter's, and not that of what `own` names."""
    return "/" not in name


def changed(action: Action, release: Release, held: Held) -> list[str]:
    """Return the names of what *action* changes: no other action may change it meanwhile.

    A release is judged by what is done to its adapter, whoever has it done; what another release
    does with its own prompt takes nothing from this one.
    """
    touches = {
        Action.LOAD: not held.has_adapter,  # else only the application gets its part
        Action.PROBE: True,
        Action.UNLOAD: not held.is_shared,
    }
    with_adapter = release.adapter and touches.get(action, False)
    return [own(release), release.engine_name] if with_adapter else [own(release)]


def is_offered(service: Service, release: Release, heard: GatewayState, held: Held) -> bool:
    """Whether the gateway may still hand out references on what would be unloaded."""
    return any(
        ready.service == service.name
        and (ready.number == release.number or _goes(ready.model, release, held))
        for ready in heard.accepted
    )


def in_flight(service: Service, release: Release, heard: GatewayState, held: Held) -> int:
    """Return how many requests are on what would be unloaded."""
    return sum(
        each.count
        for each in heard.in_flight
        if each.service == service.name
        and each.number in service.releases
        and (
            each.number == release.number
            or _goes(service.releases[each.number].engine_name, release, held)
        )
    )


def _goes(model: str, release: Release, held: Held) -> bool:
    """Whether *model* is the release's adapter, and would go with it.

    Some engines want a base and a colon before an adapter's name, which has no colon itself.
    """
    adapter = model.rpartition(":")[2]
    return bool(release.engine_name) and not held.is_shared and adapter == release.engine_name
