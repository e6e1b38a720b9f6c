"""`vctl node gc`: nodes remove the artifacts that nothing needs."""

from typing import TYPE_CHECKING, Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Output
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of

if TYPE_CHECKING:
    from vctl_plans.store.port import Store

WAIT_S = 60.0
"""For answers, where --timeout does not say how long."""


def gc(
    ctx: typer.Context,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Only these. [default: all]")
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and what stays.")
    ] = False,
) -> ExitCode:
    """Have nodes remove the artifacts that nothing needs.

    Nodes do so by themselves after a rollout, each hour, and when a fetch needs room. What a route,
    a rollout, a request, the application or this run of the engine may read stays, and so do the
    newest releases (--keep-artifacts of vctl-agent). Exit status 8: a node did not answer within
    --timeout (60s unless given), or could not tell what it needs; it removed nothing.
    """
    return collect(session_of(ctx), tuple(nodes or ()), is_dry=dry_run)


def collect(session: Session, nodes: tuple[str, ...], *, is_dry: bool) -> ExitCode:
    """Ask the nodes, and show what each removed."""
    from vctl_cli import fleetcollect  # noqa: PLC0415  needs the store

    is_table = session.output is Output.TABLE

    def tell(node: fleetcollect.NodeCollection) -> None:
        if is_table:
            session.screen.data(fleetcollect.node_text(node, is_dry=is_dry))

    async def act(store: "Store") -> ExitCode:
        view = await fleetcollect.collect_fleet(
            store,
            session.target.keys,
            nodes=nodes,
            is_dry=is_dry,
            request=session.request(""),
            timeout_s=session.target.timeout_s or WAIT_S,
            tell=tell,
        )
        show(session, view, kind="collection", table=fleetcollect.verdict_text(view))
        return view.exit_code

    return session.run(act)
