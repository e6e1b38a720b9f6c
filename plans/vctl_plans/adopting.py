"""The way into vctl: an adapter that engines serve already, loaded by hand, becomes release 1.

Nothing that runs is disturbed: the engines keep it under its public name, and nodes load it again
under its identity. What engines hold in memory nobody can hash: what is verified is what lies where
they loaded it from. Where nobody can read that, it is adopted as it is, and said to be unverified.
"""

from collections.abc import Mapping

import msgspec

from vctl_plans.errors import PlanError, RootMismatch, TransitionError
from vctl_plans.inspection import Hashed
from vctl_plans.names import suggestion
from vctl_plans.node import NodeReport
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, has_same_content
from vctl_plans.rollout import listed
from vctl_plans.snapshot import Service, way_back


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Where engines list a name."""

    name: str
    paths: dict[str, tuple[str, ...]]  # path -> the nodes whose engine loaded it from there
    missing: tuple[str, ...]  # nodes that are present, and whose engine does not list it

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose engine lists it."""
        return tuple(sorted(node for nodes in self.paths.values() for node in nodes))

    @property
    def path(self) -> str:
        """The one path that all of them loaded it from.

        Raises:
            PlanError: They are several.
        """
        if len(self.paths) > 1:
            said = "; ".join(f"{listed(nodes)}: {path}" for path, nodes in self.paths.items())
            raise PlanError(
                f"engines loaded {self.name} from several places ({said})",
                path="--adapter",
                hint="name one that all nodes can read: --path URI",
            )
        return next(iter(self.paths))


def sighting(present: Mapping[str, NodeReport], name: str) -> Sighting:
    """Return where the engines of the nodes that are present list *name*.

    Raises:
        PlanError: None does; a close miss is suggested.
    """
    paths: dict[str, list[str]] = {}
    for node, report in sorted(present.items()):
        for each in report.unmanaged:
            if each.name == name:
                paths.setdefault(each.path, []).append(node)
    if not paths:
        known = {each.name for report in present.values() for each in report.unmanaged}
        raise PlanError(
            f"no engine lists an adapter {name!r} that is not vctl's",
            path="--adapter",
            hint=suggestion(name, known) or "is it loaded, and are the agents there? vctl status",
        )
    seen = {node for nodes in paths.values() for node in nodes}
    return Sighting(
        name=name,
        paths={path: tuple(nodes) for path, nodes in paths.items()},
        missing=tuple(sorted(set(present) - seen)),
    )


def agreed(answers: Mapping[str, Hashed], source: str) -> Artifact | None:
    """Return what nodes found at *source*; None: none of them could read it.

    Raises:
        RootMismatch: They found different bytes.
    """
    roots: dict[str, list[str]] = {}
    for node, answer in sorted(answers.items()):
        if answer.root:
            roots.setdefault(answer.root, []).append(node)
    if len(roots) > 1:
        said = "; ".join(f"{listed(tuple(nodes))}: {root}" for root, nodes in roots.items())
        raise RootMismatch(f"{source} is not the same everywhere ({said})")
    for root, nodes in roots.items():
        found = answers[nodes[0]]
        return Artifact(
            root=root,
            source=source,
            size_bytes=found.size_bytes,
            rank=found.rank,
            base_name=found.base_name,
        )
    return None


def refuse_known(service: Service, artifact: Artifact) -> None:
    """Refuse a service that exists, unless this very adapter is what it serves, or brings.

    Raises:
        TransitionError: It does, with what to do instead.
    """
    if not service.releases:
        return
    running = service.rollout.to_release if service.rollout and service.is_running else 0
    for number in (running, service.current_route.stable):
        release = service.releases.get(number)
        if release and has_same_content(release, {Component.ADAPTER: artifact}):
            return
    back = f"to take it up again: {way_back(service.name, service.ejected)}"
    raise TransitionError(
        f"{service.name} is a service of vctl's already, with {len(service.releases)} releases:"
        " an import makes the first one",
        hint=back if service.ejected else "bring another release: vctl rollout start",
    )
