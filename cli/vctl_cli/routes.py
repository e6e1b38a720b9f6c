"""What a service's route says, with the groups that its overrides name: for showing and explaining.

Groups are values of their own in etcd, immutable, and read once by whoever shows them.
"""

import msgspec

from vctl_cli.reading import Reader, read_fleet, service_of
from vctl_cli.session import Session
from vctl_plans.codec import decode
from vctl_plans.errors import PlanError
from vctl_plans.groups import Groups
from vctl_plans.keys import Keys
from vctl_plans.names import suggestion
from vctl_plans.node import NodeReport
from vctl_plans.route import Route
from vctl_plans.snapshot import Service
from vctl_plans.store.port import Store


class OverrideView(msgspec.Struct, frozen=True, kw_only=True):
    """Groups that have a release of their own."""

    release: int
    groups: str  # digest
    names: tuple[str, ...]  # empty: the groups cannot be read


class RouteView(msgspec.Struct, frozen=True, kw_only=True):
    """How a service's traffic is split now."""

    service: str
    revision: int
    route: Route
    overrides: tuple[OverrideView, ...]


class Known(msgspec.Struct, frozen=True):
    """A service, the groups that its route names, by digest, and what nodes say now."""

    service: Service
    groups: dict[str, Groups]
    reports: dict[str, NodeReport] = {}


def read_route(session: Session, name: str) -> Known:
    """Read a service and the groups of its overrides.

    Raises:
        PlanError: The service does not exist.
    """
    from vctl_plans.store.gateway import GatewayUnsuitable  # noqa: PLC0415  not all commands do

    keys = session.target.keys
    fleet = read_fleet(session)
    service, reports = service_of(keys, fleet, name), fleet.present()
    digests = [override.group for override in service.current_route.overrides]
    if not digests:
        return Known(service, {}, reports)
    reader = session.world.open_reader(session.target.settings)
    try:
        return Known(service, _groups(reader, keys, digests), reports)
    except GatewayUnsuitable:
        read = session.run(lambda store: read_route_from(store, keys, service))
        return Known(service, read.groups, reports)
    finally:
        reader.close()


def _groups(reader: Reader, keys: Keys, digests: list[str]) -> dict[str, Groups]:
    found = {digest: reader.get(keys.groups(digest)) for digest in digests}
    return {d: decode(e.value, Groups, key=e.key) for d, e in found.items() if e}


async def read_route_from(store: Store, keys: Keys, service: Service) -> Known:
    """Read the groups of a service's overrides over *store*."""
    digests = [override.group for override in service.current_route.overrides]
    found = {digest: await store.get(keys.groups(digest)) for digest in digests}
    return Known(service, {d: decode(e.value, Groups, key=e.key) for d, e in found.items() if e})


def route_view(known: Known) -> RouteView:
    """Return the view of a service's route."""
    route = known.service.current_route
    return RouteView(
        service=known.service.name,
        revision=known.service.route_revision,
        route=route,
        overrides=tuple(
            OverrideView(
                release=override.release,
                groups=override.group,
                names=tuple(g.name for g in known.groups.get(override.group, Groups()).groups),
            )
            for override in route.overrides
        ),
    )


def override_named(view: RouteView, name: str) -> OverrideView:
    """Return the override of the groups with this name, digest, or beginning of a digest.

    Raises:
        PlanError: There is none, or more than one.
    """
    found = [o for o in view.overrides if name in o.names or o.groups == name]
    found = found or [o for o in view.overrides if o.groups.startswith(name)]
    if len(found) == 1:
        return found[0]
    known = [n for o in view.overrides for n in (o.names or (o.groups,))]
    if found:
        raise PlanError(
            f"{name!r} names {len(found)} overrides of {view.service}",
            path="group",
            hint="name one by its digest: " + ", ".join(o.groups for o in found),
        )
    raise PlanError(
        f"no groups of {view.service} named {name!r} have a release of their own",
        path="group",
        hint=suggestion(name, known) if known else "none has one",
    )
