"""What commands read: one service with the nodes that are present, or the whole fleet.

The whole fleet is read over etcd's JSON gateway, which starts fast; where a cluster does not let
that be, over gRPC. What is read for a decision comes from the store that will write it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from vctl_cli.session import Session
from vctl_plans.codec import decode
from vctl_plans.errors import PlanError
from vctl_plans.keys import Keys
from vctl_plans.names import suggestion
from vctl_plans.phase import Component
from vctl_plans.rollout import Progress
from vctl_plans.route import Mode
from vctl_plans.snapshot import Fleet, Service, read_nodes, read_services, surroundings
from vctl_plans.store.port import KeyValue, Listing, Store

if TYPE_CHECKING:
    from vctl_plans.etcdhealth import EtcdMember  # costs what only reads 5 ms

T = TypeVar("T")


class Reader(Protocol):
    """Reads without an event loop; `store.gateway.GatewayReader` is one."""

    def get(self, key: str) -> KeyValue | None:
        """Read one key."""
        ...

    def list(self, prefix: str) -> Listing:
        """Read all keys under *prefix* at one revision."""
        ...

    def names(self, prefix: str, *, most: int) -> tuple[str, ...]:
        """Read the first keys under *prefix*, without their values."""
        ...

    def status(self, now: Callable[[], float]) -> "EtcdMember":
        """Ask a member of etcd how it is."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Only(msgspec.Struct, frozen=True):
    """Which services are looked at; empty: whichever."""

    service: str = ""
    tenant: str = ""


EVERYTHING = Only()


class Reading(msgspec.Struct, frozen=True):
    """A service and the nodes that are present, as a decision needs them."""

    service: Service
    present: tuple[str, ...]  # sorted

    @property
    def is_known(self) -> bool:
        """Whether the service has any key."""
        service = self.service
        return bool(service.spec or service.releases or service.rollout or service.route)


async def read_service(
    store: Store,
    keys: Keys,
    name: str,
    *,
    brings_base: bool = False,
    mode: Mode = Mode.GATEWAY,
    tenant: str = "",
) -> Reading:
    """Read one service, who is present, the fleet's base, and what there is room for.

    The other services are read only where they matter: where an engine tells how many adapters it
    has places for; or where the base may have to change, since the fleet has changed it before, or
    *brings_base* says that it is about to. A service that does not exist yet is read as one of
    *mode*, and of *tenant*.

    Raises:
        PlanError: It exists, in another mode than the direct one, or of another tenant, than is
            asked for.
    """
    import asyncio  # noqa: PLC0415  what reads without a store needs none

    from vctl_plans.capacity import places  # noqa: PLC0415
    from vctl_plans.owning import made  # noqa: PLC0415  with all that decides a start

    services, nodes, base = await asyncio.gather(
        store.list(keys.service(name)), store.list(keys.nodes), store.get(keys.base)
    )
    fleet = read_services(keys, services.entries)
    service = made(fleet.services.get(name) or Service(name=name), mode=mode, tenant=tenant)
    known = any(Component.WEIGHTS in release.components for release in service.releases.values())
    may_move = bool(base) or known or brings_base
    records = read_nodes(keys, nodes.entries, ()).records
    if may_move or any(places(record.facts) is not None for record in records.values()):
        fleet = read_services(keys, (await store.list(keys.services)).entries)
    around = surroundings(name, base=base, services=fleet, records=records.values())
    return Reading(
        service=msgspec.structs.replace(service, around=around),
        present=tuple(sorted(entry.key.removeprefix(keys.nodes) for entry in nodes.entries)),
    )


async def read_known_service(
    store: Store, keys: Keys, name: str, *, can_make: bool = False
) -> Reading:
    """Read one service that must exist; *can_make* says that the command could make it.

    Raises:
        PlanError: It does not; a close miss is suggested.
    """
    reading = await read_service(store, keys, name)
    if not reading.is_known:
        raise await unknown_service(store, keys, name, can_make=can_make)
    return reading


async def unknown_service(store: Store, keys: Keys, name: str, *, can_make: bool) -> PlanError:
    """Return the refusal of a service that does not exist."""
    entries = (await store.list(keys.services)).entries
    known = {entry.key.removeprefix(keys.services).partition("/")[0] for entry in entries}
    more = "to make it, add --new-service" if can_make else ""
    return _no_service(keys.fleet, name, known, more)


def _no_service(fleet: str, name: str, known: Collection[str], more: str = "") -> PlanError:
    """Return the refusal of a service; a fleet without any may be another than was meant."""
    hint = suggestion(name, known) if known else "it has none at all: is it the right --fleet?"
    return PlanError(
        f"fleet {fleet} has no service {name!r}",
        path="service",
        hint="\n  ".join(part for part in (hint, more) if part),
    )


def read_fleet(session: Session) -> Fleet:
    """Read all services, nodes and reports of the fleet."""
    keys = session.target.keys

    def read(reader: Reader) -> Fleet:
        return fleet_of(keys, [reader.list(prefix).entries for prefix in fleet_prefixes(keys)])

    return read_fast(session, read, lambda store: read_fleet_from(store, keys))


def read_progress(session: Session, service: str) -> Progress | None:
    """Read how long the phase of the service's rollout has lasted, as last checkpointed."""
    keys = session.target.keys
    return read_fast(
        session,
        lambda reader: _progress(reader.get(keys.progress(service))),
        lambda store: read_progress_from(store, keys, service),
    )


def read_fast(
    session: Session, read: Callable[[Reader], T], read_from: Callable[[Store], Awaitable[T]]
) -> T:
    """Read over etcd's JSON gateway; where a cluster does not let that be, over gRPC.

    Args:
        session: Says where.
        read: Reads over the gateway.
        read_from: Reads the same over a store.
    """
    from vctl_plans.store.gateway import GatewayUnsuitable  # noqa: PLC0415  not all commands do

    reader = session.world.open_reader(session.target.settings)
    try:
        with session.patience.beside_thread():
            return read(reader)
    except GatewayUnsuitable:
        return session.run(read_from)
    finally:
        reader.close()


async def read_progress_from(store: Store, keys: Keys, service: str) -> Progress | None:
    """Read the same over *store*."""
    return _progress(await store.get(keys.progress(service)))


def _progress(found: KeyValue | None) -> Progress | None:
    return decode(found.value, Progress, key=found.key) if found else None


def of_tenant(fleet: Fleet, tenant: str) -> Fleet:
    """Return the fleet with one tenant's services only; empty: with all.

    Raises:
        PlanError: It has none.
    """
    only = fleet.of_tenant(tenant)
    if tenant and not only.services:
        known = {service.tenant for service in fleet.services.values()}
        raise PlanError(
            f"the tenant {tenant!r} has no service", path="--tenant", hint=suggestion(tenant, known)
        )
    return only


def service_of(keys: Keys, fleet: Fleet, name: str) -> Service:
    """Return one service of the fleet that *keys* is for.

    Raises:
        PlanError: It does not exist.
    """
    if name in fleet.services:
        return fleet.services[name]
    raise _no_service(keys.fleet, name, fleet.services)


async def read_fleet_from(store: Store, keys: Keys) -> Fleet:
    """Read all services, nodes and reports over *store*."""
    return fleet_of(keys, [(await store.list(p)).entries for p in fleet_prefixes(keys)])


def fleet_prefixes(keys: Keys) -> tuple[str, str, str]:
    """Return the prefixes that hold what is known of a fleet, as `fleet_of` takes them."""
    return keys.services, keys.nodes, keys.reports


def fleet_of(keys: Keys, parts: Sequence[Sequence[KeyValue]]) -> Fleet:
    """Return the fleet of the entries under `fleet_prefixes`."""
    services, records, reports = parts
    nodes = read_nodes(keys, records, reports)
    known = read_services(keys, services)
    return Fleet(
        services=known.services,
        records=nodes.records,
        reports=nodes.reports,
        problems=(*known.problems, *nodes.problems),
    )
