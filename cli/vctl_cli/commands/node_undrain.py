"""`vctl node undrain`: a node that was drained takes requests again."""

from typing import TYPE_CHECKING

import typer

from vctl_cli.commands.node_drain import Node, Wait
from vctl_cli.exitcodes import ExitCode
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of

if TYPE_CHECKING:
    from vctl_plans.store.port import Store


def undrain(ctx: typer.Context, node: Node, *, wait: Wait = False) -> ExitCode:
    """Have a drained node take requests again.

    It does so for each release that is ready on it, and for the others once they are.
    """
    session = session_of(ctx)
    return session.run(lambda store: undrained(session, store, node, is_awaited=wait))


async def undrained(session: Session, store: "Store", node: str, *, is_awaited: bool) -> ExitCode:
    """End the drain, and wait for the node if that is wanted."""
    from vctl_cli import draining as acts  # noqa: PLC0415  needs the store

    keys, screen = session.target.keys, session.screen
    was_asked = await acts.end(store, keys, node)
    screen.say(f"node {node} is to take requests again" if was_asked else f"{node} is not drained")
    is_done = False
    if is_awaited:
        try:
            await acts.follow(
                store,
                keys,
                node,
                is_over=acts.is_back,
                tell=lambda _: None,
                timeout_s=session.target.timeout_s,
            )
        except TimeoutError:
            screen.complain(f"vctl: node {node} is not back yet\n  see vctl nodes {node}")
            return ExitCode.TIMED_OUT
        is_done = True
    view = acts.DrainView(
        node=node, is_asked=False, is_new=was_asked, is_done=is_done, phase="", sentence=""
    )
    show(session, view, kind="drain", table=node)
    return ExitCode.DONE
