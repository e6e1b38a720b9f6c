"""`vctl route show`: how a service's traffic is split now, or at every change."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Output, Service
from vctl_cli.render.document import line
from vctl_cli.render.document import show as show_document
from vctl_cli.render.traffic import traffic_text
from vctl_cli.routes import (
    OverrideView,
    RouteView,
    read_route,
    read_route_from,
    route_view,
)
from vctl_cli.session import Session, session_of
from vctl_plans.snapshot import Service as Snapshot
from vctl_plans.snapshot import read_services
from vctl_plans.store.port import Store


def show(
    ctx: typer.Context,
    *,
    service: Service = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show every change.")] = False,
) -> ExitCode:
    """Show how a service's traffic is split now.

    --watch shows it again at every change, until Ctrl-C or --timeout; with -o json each is one
    object a line, for a program that routes by it.
    """
    session = session_of(ctx)
    name = session.service(service)
    if watch:
        return session.run(lambda store: _watched(session, store, name))
    view = route_view(read_route(session, name))
    show_document(session, view, kind="route", table=lambda: _text(view))
    return ExitCode.DONE


async def _watched(session: Session, store: Store, name: str) -> ExitCode:
    """Show the route whenever it is another; a service that does not exist yet is waited for."""
    keys = session.target.keys
    shown = -1
    try:
        async with (
            asyncio.timeout(session.target.timeout_s),
            aclosing(store.watch(keys.service(name))) as updates,  # type: ignore[type-var]
        ):
            async for update in updates:
                known = read_services(keys, update.entries.values()).services
                found = known.get(name, Snapshot(name=name))
                if not update.is_live or found.route_revision == shown:
                    continue
                shown = found.route_revision
                _tell(session, route_view(await read_route_from(store, keys, found)))
    except TimeoutError:
        pass
    return ExitCode.DONE


def _tell(session: Session, view: RouteView) -> None:
    if session.output is Output.TABLE:
        session.screen.data(f"{_text(view)}\n")
    else:
        session.screen.exact(line(view, kind="route"))


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
