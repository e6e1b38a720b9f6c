"""Base weights: they belong to the fleet, and a node holds one base at a time.

So a node is ready only for releases of the base that it holds. Which base that is to be while a
rollout changes it is decided here, alike by conductor and agents and without a list of nodes in a
watched key: a node is in the *wave* when its share of the rollout's id is below `Rollout.wave`.
"""

from typing import TYPE_CHECKING

import msgspec

from vctl_plans.capacity import Room
from vctl_plans.codec import Value
from vctl_plans.phase import Component
from vctl_plans.share import FULL_WEIGHT, share

if TYPE_CHECKING:
    from vctl_plans.release import Release
    from vctl_plans.rollout import Rollout
    from vctl_plans.snapshot import Service


class Base(Value, frozen=True, kw_only=True):
    """What `Keys.base` holds: the fleet's base, and the rollout that changes it."""

    root: str = ""  # of the weights; empty: engines hold the ones that they were started with
    lock: str = ""  # "service/rollout id" while a rollout changes the base


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a start looks at beyond its own service, since all services of a fleet share one base.

    `running`, `serving` and `fixed` are read only where a base may have to change, `named_once` in
    direct mode.
    """

    base: Base = Base()
    revision: int | None = None  # mod_revision of the base's key, 0: no such key; None: not read
    running: tuple[str, ...] = ()  # other services whose rollouts run
    serving: tuple[str, ...] = ()  # other services that serve
    fixed: tuple[str, ...] = ()  # nodes that are present and whose engine cannot change its base
    named_once: tuple[str, ...] = ()  # those whose engine cannot give a name another adapter
    room: Room | None = None  # on the engines of the nodes that are present; None: not read


def base_root(release: "Release | None") -> str:
    """Return the root of the base that *release* runs on; empty: the one engines start with."""
    weights = release.components.get(Component.WEIGHTS) if release else None
    return weights.root if weights else ""


def target(rollout: "Rollout") -> int:
    """Return the release whose base nodes change to."""
    return rollout.back_to or rollout.to_release


def is_in_wave(rollout: "Rollout", node: str) -> bool:
    """Whether *node* is to hold the base of what the rollout brings."""
    return share(rollout.id, node) < rollout.wave


def side(rollout: "Rollout", node: str) -> int:
    """Return the release whose base *node* is to hold while the rollout runs."""
    if is_in_wave(rollout, node):
        return rollout.to_release
    goes_back = rollout.back_to not in {0, rollout.to_release}
    return rollout.back_to if goes_back else rollout.from_release


def grows(rollout: "Rollout") -> bool:
    """Whether nodes enter the wave; on the way back from what it brought they leave it."""
    return target(rollout) == rollout.to_release


def whole_wave(rollout: "Rollout") -> float:
    """Return the wave at which every node is to hold the target's base."""
    return FULL_WEIGHT if grows(rollout) else 0.0


def base_wanted(service: "Service", node: str) -> "Release | None":
    """Return the release whose base *service* has *node* hold; None: it serves nothing yet."""
    rollout = service.rollout
    runs = rollout is not None and not rollout.phase.is_terminal
    if rollout and runs and (rollout.moves_base or not service.current_route.stable):
        return service.releases.get(side(rollout, node) or rollout.to_release)
    return service.stable


def is_of_base(service: "Service", number: int, node: str) -> bool:
    """Whether release *number* runs on the base that *node* is to hold."""
    wanted = base_wanted(service, node)
    return wanted is None or base_root(service.releases.get(number)) == base_root(wanted)


def is_apart(service: "Service", number: int, node: str) -> bool:
    """Whether *node* holds another release in this one's place, while the two are exchanged."""
    rollout = service.rollout
    if rollout is None or rollout.phase.is_terminal or not rollout.exchanges:
        return False
    here = side(rollout, node)
    if number == here or number not in {rollout.from_release, rollout.to_release, rollout.back_to}:
        return False
    if any(override.release == number for override in service.current_route.overrides):
        return False
    own, theirs = service.releases.get(number), service.releases.get(here)
    return own is None or theirs is None or own.engine_name != theirs.engine_name


def has_place(service: "Service", number: int, node: str) -> bool:
    """Whether *node* is to hold release *number*, if it is wanted at all."""
    return is_of_base(service, number, node) and not is_apart(service, number, node)
