"""`vctl nodes`: each node in a line, the worst first."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.reading import read_fleet
from vctl_cli.render.document import show
from vctl_cli.session import session_of
from vctl_plans.errors import PlanError
from vctl_plans.names import suggestion
from vctl_plans.snapshot import Fleet


def nodes(
    ctx: typer.Context,
    node: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Only these. [default: all]")
    ] = None,
) -> ExitCode:
    """Show the nodes, the worst first.

    Of each: the phase of what is wanted of it, what its engine holds, how many places for adapters
    are in use, its free memory, its engine and for how long that runs, and when it was last seen.
    """
    from vctl_cli.nodelist import nodes_text, nodes_view  # noqa: PLC0415  after what may refuse

    session = session_of(ctx)
    fleet = read_fleet(session)
    view = nodes_view(fleet, name=session.target.keys.fleet, only=known(fleet, node or ()))
    show(session, view, kind="node-list", table=lambda: nodes_text(view, now=session.world.now()))
    return ExitCode.DONE


def known(fleet: Fleet, names: list[str] | tuple[str, ...]) -> list[str]:
    """Return *names*, all of which the fleet knows.

    Raises:
        PlanError: It does not; a close miss is suggested.
    """
    all_nodes = {*fleet.records, *fleet.reports}
    for name in names:
        if name not in all_nodes:
            hint = suggestion(name, all_nodes)
            raise PlanError(f"there is no node {name!r}", path="NODE", hint=hint)
    return list(names)
