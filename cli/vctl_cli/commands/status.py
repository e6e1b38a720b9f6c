"""`vctl status`: the fleet in one look, or live."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, OnlyTenant
from vctl_cli.reading import EVERYTHING, Only, of_tenant, read_fast, service_of
from vctl_cli.render.document import show
from vctl_cli.render.summary import summary_text
from vctl_cli.render.table import status_text
from vctl_cli.session import Session, session_of
from vctl_cli.summing import look, look_at, summary_view
from vctl_plans.errors import PlanError
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.status import StatusView
from vctl_plans.status import status as fleet_status


def status(
    ctx: typer.Context,
    *,
    service: Annotated[
        str, typer.Option("--service", "-s", metavar="NAME", help="Only this service.")
    ] = "",
    tenant: OnlyTenant = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show every change.")] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Count the nodes, name only the worst.")
    ] = False,
    junit: Junit = "",
) -> ExitCode:
    """Show the fleet's services and nodes.

    READY counts the nodes that hold the release that matters now; ROUTE those whose gateway acts
    on the present route. --watch shows every change, until Ctrl-C or --timeout; with --service it
    ends with the service's rollout, the exit code says how, and --junit reports it. Above 200
    nodes, or with --summary, they are counted by the conductor and only the worst are named.
    """
    session = session_of(ctx)
    if junit and not (watch and service):
        hint = "add --watch and --service NAME: it reports how that service's rollout went"
        raise PlanError("there is no rollout to report", path="--junit", hint=hint)
    if watch:
        from vctl_cli.fleetwatch import watch_fleet  # noqa: PLC0415  one look needs no gRPC

        only = Only(service, tenant)
        return session.run(
            lambda s: watch_fleet(session, s, only, wants_summary=summary, junit=junit)
        )
    show_once(session, Only(service, tenant), wants_summary=summary)
    return ExitCode.DONE


def show_once(session: Session, only: Only, *, wants_summary: bool) -> None:
    """Show the fleet, or some services on it, as it is now.

    Raises:
        PlanError: The service does not exist, or the tenant has none.
    """
    keys, bad = session.target.keys, session.screen.bad
    seen = read_fast(
        session,
        lambda reader: look(reader, keys, wants_summary=wants_summary),
        lambda store: look_at(store, keys, wants_summary=wants_summary),
    )
    if seen.fleet is None:
        summed = summary_view(keys, seen.services, seen.summary, only=only)
        show(session, summed, kind="summary", table=lambda: summary_text(summed, bad))
        return
    view = status_view(keys, seen.fleet, only=only)
    show(session, view, kind="status", table=lambda: status_text(view, bad))


def status_view(keys: Keys, known: Fleet, *, only: Only = EVERYTHING) -> StatusView:
    """Return the view of the fleet, or of some services on it.

    Raises:
        PlanError: The service does not exist, or the tenant has none.
    """
    known = of_tenant(known, only.tenant)
    if only.service:
        services = {only.service: service_of(keys, known, only.service)}
        known = Fleet(services=services, records=known.records, reports=known.reports)
    return fleet_status(known, name=keys.fleet)
