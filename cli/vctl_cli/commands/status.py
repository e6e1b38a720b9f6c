"""`vctl status`: the fleet in one look, or live."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.reading import read_fleet, service_of
from vctl_cli.render.document import show
from vctl_cli.render.table import status_text
from vctl_cli.session import session_of
from vctl_plans.snapshot import Fleet
from vctl_plans.status import StatusView
from vctl_plans.status import status as fleet_status


def status(
    ctx: typer.Context,
    *,
    service: Annotated[
        str, typer.Option("--service", "-s", metavar="NAME", help="Only this service.")
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show every change.")] = False,
) -> ExitCode:
    """Show the fleet's services and nodes.

    READY counts the nodes that hold the release that matters now; ROUTE those whose gateway acts
    on the present route. --watch shows every change, until Ctrl-C or --timeout; with --service it
    ends with the service's rollout, and the exit code says how.
    """
    session = session_of(ctx)
    if watch:
        from vctl_cli.fleetwatch import watch_fleet  # noqa: PLC0415  one look needs no gRPC

        return session.run(lambda store: watch_fleet(session, store, service))
    view = status_view(read_fleet(session), fleet=session.target.keys.fleet, service=service)
    show(session, view, kind="status", table=lambda: status_text(view))
    return ExitCode.DONE


def status_view(known: Fleet, *, fleet: str, service: str = "") -> StatusView:
    """Return the view of the fleet, or of one service on it.

    Raises:
        PlanError: The service does not exist.
    """
    if service:
        only = {service: service_of(known, service)}
        known = Fleet(services=only, records=known.records, reports=known.reports)
    return fleet_status(known, name=fleet)
