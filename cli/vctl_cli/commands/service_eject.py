"""`vctl service eject`: engines keep what serves under the service's own name, and vctl lets go.

Order: every node's engine lists it first; only then, and only if all do, is the service let go.
"""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from vctl_cli.asking import ask_nodes, present_nodes
from vctl_cli.deciding import repeated
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Reason
from vctl_cli.reading import read_known_service
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.ejecting import eject as decide_eject
from vctl_plans.ejecting import refuse
from vctl_plans.inspection import Named, NameRequest
from vctl_plans.node import NodeReport
from vctl_plans.operate import Request
from vctl_plans.release import Release
from vctl_plans.rollout import listed
from vctl_plans.snapshot import way_back
from vctl_plans.store.commit import eject_txn
from vctl_plans.store.port import Store
from vctl_plans.units import utc_text

ANSWERED_WITHIN_S = 120.0


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's engine holds under the service's own name."""

    node: str
    path: str = ""
    problem: str = ""


class EjectView(msgspec.Struct, frozen=True, kw_only=True):
    """How far the way out was gone."""

    service: str
    release: int
    nodes: tuple[NodeAnswer, ...]
    unconfirmed: tuple[str, ...]  # present, and did not confirm
    is_let_go: bool
    way_back: str  # the command that takes the service up again


def eject(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service to let go.")],
    *,
    prepare: Annotated[
        bool,
        typer.Option("--prepare", help="Only have engines hold it by its name; vctl keeps it."),
    ] = False,
    reason: Reason = "",
) -> ExitCode:
    """Hand a service back to its engines, and let it go.

    Every node's engine loads the stable release under the service's own name and lists it; clients
    can then call engines without a gateway. Once all nodes that are present have confirmed it,
    gateways serve the service no more: move its clients before, between a run with --prepare and
    one without. Exit code 8: a named node did not confirm, and nothing was let go. Releases and
    history stay in etcd, and the last line says how to come back.
    """
    session = session_of(ctx)
    request = session.request(reason)
    if not prepare:
        session.confirm(f"Once its engines hold it, let {service} go: gateways serve it no more?")

    async def act(store: Store) -> ExitCode:
        view = await ejected(session, store, service, request=request, is_dry=prepare)
        show(session, view, kind="ejection", table=_text(view))
        return ExitCode.UNCONFIRMED if view.unconfirmed else ExitCode.DONE

    return session.run(act)


async def ejected(
    session: Session, store: Store, service: str, *, request: Request, is_dry: bool
) -> EjectView:
    """Have engines hold the service by its name; let it go if all do, unless *is_dry*.

    Raises:
        PlanError: The service does not exist, or no node is present.
        TransitionError: A rollout runs, or nothing serves.
    """
    keys = session.target.keys
    stable = refuse((await read_known_service(store, keys, service)).service)
    found = await _named(session, store, stable, request)
    present = await present_nodes(store, keys)  # one may have joined meanwhile
    good = {node for node, answer in found.items() if not answer.problem}
    unconfirmed = tuple(sorted(present - good))
    is_let_go = not (unconfirmed or is_dry)
    if is_let_go:
        await let_go(session, store, stable, request)
    return EjectView(
        service=service,
        release=stable.number,
        nodes=tuple(
            NodeAnswer(node=node, path=found[node].path, problem=found[node].problem)
            for node in sorted(found)
        ),
        unconfirmed=unconfirmed,
        is_let_go=is_let_go,
        way_back=way_back(service, stable.number) if is_let_go else "",
    )


async def _named(
    session: Session, store: Store, stable: Release, request: Request
) -> dict[str, Named]:
    keys = session.target.keys

    def answer(report: NodeReport) -> Named | None:
        return next((each for each in report.named if each.request == request.id), None)

    return await ask_nodes(
        store,
        keys,
        NameRequest(
            id=request.id,
            service=stable.service,
            number=stable.number,
            digest=stable.digest,
            by=request.by,
        ),
        nodes=await present_nodes(store, keys),
        answer=answer,
        timeout_s=session.target.timeout_s or ANSWERED_WITHIN_S,
        tell=lambda node, named: session.screen.say(
            f"{node}: {named.problem or f'holds {stable.service} from {named.path}'}"
        ),
    )


async def let_go(session: Session, store: Store, stable: Release, request: Request) -> None:
    """Retire the service's route, unless something else serves by now.

    Raises:
        TransitionError: Something does, or a rollout runs.
    """
    keys = session.target.keys

    async def once() -> None:
        service = (await read_known_service(store, keys, stable.service)).service
        decided = decide_eject(service, stable, request)
        spec = await store.get(keys.spec(stable.service))
        before = spec.value if spec else b""
        at = utc_text(datetime.now(UTC))
        await store.commit(eject_txn(keys, service, decided, before=before, at=at))

    await repeated(once)


def _text(view: EjectView) -> str:
    held = f"{view.service}: engines of {len(view.nodes)} nodes asked for release {view.release}"
    if view.unconfirmed:
        return f"{held}; unconfirmed: {listed(view.unconfirmed)}; nothing was let go"
    held = f"{view.service}: {len(view.nodes)} engines hold release {view.release} by that name"
    if not view.is_let_go:
        return f"{held}; move its clients to them, then: vctl service eject {view.service}"
    return (
        f"{held}; vctl let it go\n"
        f"in etcd stay its releases, its history and what was revoked;"
        f" to come back: {view.way_back}"
    )
