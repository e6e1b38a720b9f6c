"""The fleet as one reading of the store shows it: decoded values, each with its revision.

A value that cannot be read is kept as a problem of its own and never hides the others.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from vctl_plans.base import Base, Surroundings
from vctl_plans.capability import Capability, lacking
from vctl_plans.capacity import room
from vctl_plans.codec import decode
from vctl_plans.errors import VctlError
from vctl_plans.fuse import Fuse
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.release import Release
from vctl_plans.rollout import DEFAULT_TENANT, Rollout, ServiceSpec
from vctl_plans.route import Mode, Route

T = TypeVar("T", bound=msgspec.Struct)


class Entry(Protocol):
    """What a snapshot needs of a stored key; the store's `KeyValue` is one."""

    @property
    def key(self) -> str:
        """The key."""
        ...

    @property
    def value(self) -> bytes:
        """The value."""
        ...

    @property
    def mod_revision(self) -> int:
        """The revision at which the key was last written."""
        ...


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service's keys, decoded."""

    name: str
    spec: ServiceSpec | None = None
    spec_revision: int = 0
    releases: dict[int, Release] = {}
    rollout: Rollout | None = None
    rollout_revision: int = 0  # mod_revision; 0: there is no such key
    rollout_bytes: bytes = b""
    route: Route | None = None
    route_revision: int = 0  # mod_revision: the route revision
    route_bytes: bytes = b""
    fuse: Fuse | None = None  # who may be quarantined for what serves
    around: Surroundings = Surroundings()

    @property
    def current_route(self) -> Route:
        """The route, or the one that a service begins with.

        After it was let go, that is one on which what was revoked still is.
        """
        if self.route:
            return self.route
        retired = self.spec.retired if self.spec else None
        return Route(
            service=self.name,
            salt=self.name,
            mode=self.spec.mode if self.spec else Mode.GATEWAY,
            revoked=retired.revoked if retired else (),
        )

    @property
    def tenant(self) -> str:
        """Whose service it is."""
        return self.spec.tenant if self.spec else DEFAULT_TENANT

    @property
    def is_direct(self) -> bool:
        """Whether clients call the engines themselves."""
        return self.current_route.mode is Mode.DIRECT

    @property
    def ejected(self) -> int:
        """The release that engines were left with when vctl let the service go; 0: it has it."""
        retired = self.spec.retired if self.spec else None
        return retired.stable if retired and not self.route_revision else 0

    @property
    def is_running(self) -> bool:
        """Whether it has a rollout that has not ended."""
        return self.rollout is not None and not self.rollout.phase.is_terminal

    @property
    def stable(self) -> Release | None:
        """The stable release, when there is one."""
        return self.releases.get(self.route.stable) if self.route else None


def way_back(service: str, number: int) -> str:
    """Return the command by which vctl takes a service up again that it let go."""
    return f"vctl rollout start --service {service} --release {number}"


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet's services and nodes."""

    services: dict[str, Service] = {}
    records: dict[str, NodeRecord] = {}
    reports: dict[str, NodeReport] = {}
    problems: tuple[str, ...] = ()

    def of_tenant(self, tenant: str) -> "Fleet":
        """Return the fleet with that tenant's services only; empty: with all."""
        if not tenant:
            return self
        own = {name: service for name, service in self.services.items() if service.tenant == tenant}
        return msgspec.structs.replace(self, services=own)

    def busy_beside(self, name: str) -> tuple[str, ...]:
        """Return the services other than *name* that serve, or whose rollouts run."""
        others = (service for service in self.services.values() if service.name != name)
        return tuple(sorted(s.name for s in others if s.is_running or s.current_route.stable))

    def present(self) -> dict[str, NodeReport]:
        """Return the reports that count: of nodes that live, by the agent that lives now."""
        return {
            node: report
            for node, report in self.reports.items()
            if node in self.records and self.records[node].boot_id == report.boot_id
        }


def read_services(keys: Keys, entries: Iterable[Entry]) -> Fleet:
    """Return the services of the entries under `Keys.services`."""
    reader = _Reader()
    parts: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        name, _, rest = entry.key.removeprefix(keys.services).partition("/")
        parts.setdefault(name, {})[rest] = entry
    services = {name: _service(name, found, reader) for name, found in parts.items()}
    return Fleet(services=services, problems=tuple(reader.problems))


def _service(name: str, parts: Mapping[str, Entry], reader: "_Reader") -> Service:
    releases = [
        reader.read(entry, Release) for part, entry in parts.items() if part.startswith("releases/")
    ]
    rollout, route, spec = (parts.get(part) for part in ("rollout", "route", "spec"))
    fuse = reader.read(parts.get("fuse"), Fuse)
    return Service(
        name=name,
        spec=reader.read(spec, ServiceSpec),
        spec_revision=spec.mod_revision if spec else 0,
        releases={r.number: r for r in releases if r},
        rollout=reader.read(rollout, Rollout),
        rollout_revision=rollout.mod_revision if rollout else 0,
        rollout_bytes=rollout.value if rollout else b"",
        route=reader.read(route, Route),
        route_revision=route.mod_revision if route else 0,
        route_bytes=route.value if route else b"",
        fuse=fuse,
    )


def surroundings(
    name: str, *, base: Entry | None, services: Fleet, records: Collection[NodeRecord]
) -> Surroundings:
    """Return what a start of service *name* looks at beside it.

    Args:
        name: The service.
        base: The entry of `Keys.base`, if there is one.
        services: All services, or only this one where nothing beside it can matter.
        records: The nodes that are present.

    Raises:
        VctlError: The base cannot be read: it may be locked.
    """
    others = [service for service in services.services.values() if service.name != name]
    known = tuple(records)
    return Surroundings(
        base=decode(base.value, Base, key=base.key) if base else Base(),
        revision=base.mod_revision if base else 0,
        running=tuple(sorted(s.name for s in others if s.is_running)),
        serving=tuple(sorted(s.name for s in others if s.current_route.stable)),
        fixed=tuple(sorted(r.node for r in known if lacking(r.facts, {Capability.SWAP_BASE}))),
        named_once=tuple(
            sorted(
                f"{r.node}{remedy(r, Capability.REPLACE)}"
                for r in known
                if lacking(r.facts, {Capability.REPLACE})
            )
        ),
        room=room(known, others),
    )


def remedy(record: NodeRecord, capability: Capability) -> str:
    """Return what would give the node's engine *capability*, in parentheses; nothing if nothing."""
    if record.facts is None:
        return " (its engine has not answered yet)"
    setting = record.facts.remedy(capability)
    return f" (start its engine with {setting})" if setting else ""


def read_nodes(keys: Keys, records: Iterable[Entry], reports: Iterable[Entry]) -> Fleet:
    """Return the nodes of the entries under `Keys.nodes` and `Keys.reports`."""
    reader = _Reader()
    known = {e.key.removeprefix(keys.nodes): reader.read(e, NodeRecord) for e in records}
    said = {e.key.removeprefix(keys.reports): reader.read(e, NodeReport) for e in reports}
    return Fleet(
        records={node: record for node, record in known.items() if record},
        reports={node: report for node, report in said.items() if report},
        problems=tuple(reader.problems),
    )


class _Reader:
    """Decodes values and collects what could not be read."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, entry: Entry | None, kind: type[T]) -> T | None:
        """Return the value, or None when there is none that can be read."""
        if entry is None:
            return None
        try:
            return decode(entry.value, kind, key=entry.key)
        except VctlError as problem:
            self.problems.append(problem.message)
            return None
