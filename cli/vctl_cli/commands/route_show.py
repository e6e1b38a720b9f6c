"""`vctl route show`: how a service's traffic is split now."""

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.render.document import show as show_document
from vctl_cli.render.traffic import traffic_text
from vctl_cli.routes import OverrideView, RouteView, read_route, route_view
from vctl_cli.session import session_of


def show(ctx: typer.Context, *, service: Service = "") -> ExitCode:
    """Show how a service's traffic is split now."""
    session = session_of(ctx)
    view = route_view(read_route(session, session.service(service)))
    show_document(session, view, kind="route", table=lambda: _text(view))
    return ExitCode.DONE


def _text(view: RouteView) -> str:
    route = view.route
    lines = [
        f"service   {view.service}",
        f"route     revision {view.revision or 'none'}",
        f"traffic   {traffic_text(route)}",
        *(f"override  release {o.release} for {_names(o)}" for o in view.overrides),
        *([f"hold      {route.hold.stage}"] if route.hold else []),
        f"instant   {_numbers(route.instant)}",
        f"good      {_numbers(tuple(n for n in route.good if n not in route.revoked))}",
        f"revoked   {_numbers(route.revoked)}",
    ]
    return "\n".join(lines)


def _names(override: OverrideView) -> str:
    names = ", ".join(override.names) or "groups that cannot be read"
    return f"{names} ({override.groups[:15]})"


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers) or "-"
