"""What `status` shows of a large fleet: its services, and the summary that the conductor keeps.

What a service's own keys say is read from them, and is of now; only what is counted over all nodes
comes from the summary. Where that is missing, or older than the service's last decision, it is
said.
"""

from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vctl_cli.reading import EVERYTHING, Only, Reader, fleet_of, fleet_prefixes, of_tenant
from vctl_plans.codec import decode
from vctl_plans.errors import PlanError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.names import suggestion
from vctl_plans.snapshot import Fleet, Service, read_services
from vctl_plans.status import ServiceStatus, service_status
from vctl_plans.store.port import KeyValue, Store
from vctl_plans.summary import Summary, WorstNode, is_older

LARGE = 200
"""Nodes above which the fleet's reports are not read one by one."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted over all nodes for one service."""

    service: str
    phases: dict[str, int]
    worst: tuple[WorstNode, ...]
    unnamed: int  # nodes that would be named too
    is_older: bool  # than the service's last decision


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """A large fleet."""

    fleet: str
    present: int  # nodes that live
    known: int  # nodes that live, or whose last word is kept
    services: tuple[ServiceStatus, ...]
    counts: tuple[Counts, ...]
    problems: tuple[str, ...] = ()
    is_there: bool = True  # False: there is no summary, nothing is counted
    is_live: bool = True  # False: the store is away, this is the last that was known


def summary_view(
    keys: Keys, entries: Sequence[KeyValue], held: KeyValue | None, *, only: Only = EVERYTHING
) -> SummaryView:
    """Return the view of the entries under `Keys.services` and of the summary's key.

    Raises:
        PlanError: The service that is named does not exist, or the tenant has none.
    """
    known, service = of_tenant(read_services(keys, entries), only.tenant), only.service
    if service and service not in known.services:
        hint = suggestion(service, known.services)
        raise PlanError(f"there is no service {service!r}", path="service", hint=hint)
    found, unreadable = read_summary(held)
    shown = [known.services[name] for name in ([service] if service else sorted(known.services))]
    summed = found or Summary()
    return SummaryView(
        fleet=keys.fleet,
        present=summed.present,
        known=summed.known,
        services=tuple(_line(each, summed) for each in shown),
        counts=tuple(_counts(each, summed) for each in shown),
        problems=(*known.problems, *unreadable, *summed.problems),
        is_there=found is not None,
    )


def _line(service: Service, found: Summary) -> ServiceStatus:
    said = found.of(service.name)
    return msgspec.structs.replace(
        service_status(service, Fleet()),
        nodes=found.present,
        ready=said.ready if said else 0,
        acting=said.acting if said else 0,
        glass=said.glass if said else {},
        pins=said.pins if said else {},
    )


def _counts(service: Service, found: Summary) -> Counts:
    said = found.of(service.name)
    return Counts(
        service=service.name,
        phases=said.phases if said else {},
        worst=said.worst if said else (),
        unnamed=said.unnamed if said else 0,
        is_older=is_older(said, service),
    )


def read_summary(held: KeyValue | None) -> tuple[Summary | None, tuple[str, ...]]:
    """Return the summary, and what is wrong with it where it cannot be read."""
    try:
        return (decode(held.value, Summary, key=held.key) if held else None), ()
    except VctlError as problem:
        return None, (problem.message,)


def is_large(held: KeyValue | None) -> bool:
    """Whether the summary tells of a fleet that is too large to be read node by node."""
    found, _ = read_summary(held)
    return found is not None and found.present > LARGE


async def sees_large(store: Store, keys: Keys) -> bool:
    """Return the same for a watch, which waits until etcd answers.

    Raises:
        StoreError: The store refused to be watched.
    """
    async with aclosing(store.watch(keys.summary)) as updates:  # type: ignore[type-var]
        async for update in updates:
            if update.is_live:
                return is_large(update.entries.get(keys.summary))
    raise AssertionError  # a watch has no end of its own


class Seen(msgspec.Struct, frozen=True):
    """What was read of a fleet: all of it, or its services and its summary."""

    fleet: Fleet | None
    services: tuple[KeyValue, ...] = ()
    summary: KeyValue | None = None


def look(reader: Reader, keys: Keys, *, wants_summary: bool) -> Seen:
    """Read the fleet: whole where it is small, unless its summary is wanted."""
    held = reader.get(keys.summary)
    if wants_summary or is_large(held):
        return Seen(None, reader.list(keys.services).entries, held)
    return Seen(fleet_of(keys, [reader.list(prefix).entries for prefix in fleet_prefixes(keys)]))


async def look_at(store: Store, keys: Keys, *, wants_summary: bool) -> Seen:
    """Read the same over *store*."""
    held = await store.get(keys.summary)
    if wants_summary or is_large(held):
        return Seen(None, (await store.list(keys.services)).entries, held)
    return Seen(fleet_of(keys, [(await store.list(p)).entries for p in fleet_prefixes(keys)]))
