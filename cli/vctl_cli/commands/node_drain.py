"""`vctl node drain`: a node takes no new requests, until `vctl node undrain`."""

from typing import TYPE_CHECKING, Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Reason
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of

if TYPE_CHECKING:
    from vctl_plans.inspection import Drained
    from vctl_plans.store.port import Store

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return once the node says that it is so, or at --timeout.")
]


def drain(ctx: typer.Context, node: Node, *, reason: Reason = "", wait: Wait = False) -> ExitCode:
    """Have a node take no new requests.

    Peers answer for its clients; requests in flight end in their own time. What its engine holds
    stays, rollouts go on bringing it what is new, and no rollout waits for it. A node for which no
    other could answer serves on, and says why. It lasts, whatever restarts, until vctl node
    undrain. Exit status with --wait: 5, it is not drained yet.
    """
    session = session_of(ctx)
    return session.run(lambda store: drained(session, store, node, reason=reason, is_awaited=wait))


async def drained(
    session: Session, store: "Store", node: str, *, reason: str, is_awaited: bool
) -> ExitCode:
    """Ask, and follow the node's answer if that is wanted."""
    from vctl_cli import draining as acts  # noqa: PLC0415  needs the store

    keys, say = session.target.keys, session.screen.say
    is_new = await acts.ask(store, keys, node, session.request(reason))
    stands = await acts.asked(store, keys, node)
    who = f" by {stands.by.user}" if stands and stands.by.user else ""
    say(f"node {node} is to be drained" if is_new else f"node {node} is drained already{who}")
    if not is_awaited:
        say(f"  how far it is: vctl nodes {node}; back: vctl node undrain {node}")
        return _shown(session, node, is_new=is_new, said=None)

    def tell(said: "Drained | None") -> None:
        if said:
            say(f"node {node}: {said.sentence}")

    try:
        last = await acts.follow(
            store,
            keys,
            node,
            is_over=acts.is_drained,
            tell=tell,
            timeout_s=session.target.timeout_s,
        )
    except TimeoutError:
        session.screen.complain(
            f"vctl: node {node} is not drained yet; it goes on\n  see vctl nodes {node}"
        )
        return ExitCode.TIMED_OUT
    return _shown(session, node, is_new=is_new, said=last.drain if last else None)


def _shown(session: Session, node: str, *, is_new: bool, said: "Drained | None") -> ExitCode:
    from vctl_cli.draining import DrainView  # noqa: PLC0415

    view = DrainView(
        node=node,
        is_asked=True,
        is_new=is_new,
        is_done=said is not None,
        phase=said.phase.value if said else "",
        sentence=said.sentence if said else "",
    )
    show(session, view, kind="drain", table=node)
    return ExitCode.DONE
