"""One thing that is being done for a release, and at whose request."""

import msgspec

from vctl_agent.engines.port import Description
from vctl_agent.tries import Key, Occasion
from vctl_plans.golden import golden_of
from vctl_plans.node_machine import Action
from vctl_plans.release import Release
from vctl_plans.snapshot import Service


class Work(msgspec.Struct, frozen=True):
    """What is done, and what nobody else may touch meanwhile."""

    action: Action
    release: Release
    names: list[str]  # of what it changes, see `holdings.changed`
    occasion: Occasion
    keeps_adapter: bool = False
    under: str = ""  # the adapter's name in the engine; empty: its identity's

    @property
    def key(self) -> Key:
        """The release's key in `Tries`."""
        return key(self.release)


def key(release: Release) -> Key:
    """Return a release's key in `Tries`."""
    return release.service, release.number


def attempt(service: Service) -> str:
    """Return at whose request something of *service* is tried now."""
    return service.rollout.attempt if service.rollout else ""


def occasion(service: Service, engine: Description | None, release: Release) -> Occasion:
    """Return when, and for what, something of *release* is tried, if it is now."""
    return Occasion(
        attempt=attempt(service),
        incarnation=engine.incarnation if engine else "",
        is_serving=service.current_route.stable == release.number,
        golden=golden_of(release, service.rollout),
    )
