"""`vctl service list`: the services, and how each is served."""

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import OnlyTenant
from vctl_cli.reading import of_tenant, read_fleet
from vctl_cli.render.document import show
from vctl_cli.render.table import table
from vctl_cli.session import session_of
from vctl_plans.route import Mode
from vctl_plans.snapshot import Fleet, Service
from vctl_plans.status import notes


class ServiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One service."""

    service: str
    tenant: str
    mode: Mode
    release: int  # that serves; 0: none
    vector: str
    phase: str  # of the last rollout; empty: there was none
    ejected: int  # the release that engines were left with; 0: vctl has the service
    unverified: str  # what of the release nobody could verify; empty: nothing
    notes: tuple[str, ...]


class ServiceList(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet's services by name."""

    fleet: str
    services: tuple[ServiceLine, ...]
    problems: tuple[str, ...] = ()


def list_services(ctx: typer.Context, *, tenant: OnlyTenant = "") -> ExitCode:
    """List the services of a fleet."""
    session = session_of(ctx)
    fleet = of_tenant(read_fleet(session), tenant)
    view = services_view(session.target.keys.fleet, fleet)
    show(session, view, kind="services", table=lambda: _text(view))
    return ExitCode.DONE


def services_view(name: str, fleet: Fleet) -> ServiceList:
    """Return the view of all services of the fleet that is called *name*."""
    lines = (_line(fleet.services[each]) for each in sorted(fleet.services))
    return ServiceList(fleet=name, services=tuple(lines), problems=fleet.problems)


def _line(service: Service) -> ServiceLine:
    stable, rollout = service.stable, service.rollout
    return ServiceLine(
        service=service.name,
        tenant=service.tenant,
        mode=service.current_route.mode,
        release=service.current_route.stable,
        vector=stable.vector_text if stable else "",
        phase=rollout.phase if rollout else "",
        ejected=service.ejected,
        unverified=stable.unverified if stable else "",
        notes=notes(service),
    )


def _text(view: ServiceList) -> str:
    if not view.services:
        return f"fleet {view.fleet}: no service"
    head = ("SERVICE", "TENANT", "MODE", "RELEASE", "VECTOR", "PHASE", "")
    rows = [
        (s.service, s.tenant, s.mode, str(s.release or "none"), s.vector or "-", s.phase or "-",
         "; ".join(s.notes))
        for s in view.services
    ]  # fmt: skip
    unreadable = [f"unreadable: {problem}" for problem in view.problems]
    return "\n".join([table(head, rows), *unreadable])
