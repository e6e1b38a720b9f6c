"""`vctl rollback`: back to an earlier release; with `--now` traffic first, in one transaction.

Nothing may come between the start of the process and that transaction but few reads: each import
and each question here is time that bad answers go on.
"""

from typing import Annotated

import typer

from vctl_cli.deciding import carry_out
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import AllowDowntime, Junit, NoWatch, Reason, Service
from vctl_cli.reading import Reading, read_known_service
from vctl_cli.session import session_of
from vctl_plans.document import RollbackDocument, resolve
from vctl_plans.keys import Keys
from vctl_plans.operate import (
    AlreadyDone,
    Attach,
    Begin,
    Continue,
    Request,
)
from vctl_plans.operate import start as decide_start
from vctl_plans.reverting import rollback_now
from vctl_plans.store.port import Store

LAST_GOOD = 0


def rollback(
    ctx: typer.Context,
    *,
    service: Service = "",
    now: Annotated[
        bool, typer.Option("--now", help="Move traffic at once; drain and unload after it.")
    ] = False,
    to: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The release. [default: the last good one]"),
    ] = None,
    reason: Reason = "",
    allow_downtime: AllowDowntime = False,
    no_watch: NoWatch = False,
    junit: Junit = "",
) -> ExitCode:
    """Return a service to an earlier release.

    The release that it leaves is revoked: it never serves again. With --now the route is written
    by this command in its first transaction, and wins over any step of a rollout that runs; where
    the target is not loaded on all nodes, it is loaded first.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    act = back_now if now else back_by_plan

    async def run(store: Store) -> ExitCode:
        from vctl_cli.watching import finish  # noqa: PLC0415  after the transaction

        decision = await act(
            store,
            session.target.keys,
            name,
            to=to or LAST_GOOD,
            request=request,
            allow_downtime=allow_downtime,
        )
        return await finish(
            session, store, decision, is_watched=not no_watch, asked_back=True, junit=junit
        )

    return session.run(run)


async def back_now(
    store: Store,
    keys: Keys,
    service: str,
    *,
    to: int,
    request: Request,
    allow_downtime: bool = False,
) -> Begin | Continue | Attach:
    """Write route and phase at once, or find the rollback that already runs.

    Raises:
        PlanError: The service or the release does not exist.
        TransitionError: There is nothing to return to, or the target is revoked.
    """

    def decide(reading: Reading) -> Begin | Continue | Attach:
        return rollback_now(
            reading.service,
            to=to,
            roster=reading.present,
            request=request,
            allow_downtime=allow_downtime,
        )

    return await carry_out(store, keys, lambda: read_known_service(store, keys, service), decide)


async def back_by_plan(
    store: Store,
    keys: Keys,
    service: str,
    *,
    to: int,
    request: Request,
    allow_downtime: bool = False,
) -> Begin | Attach | AlreadyDone:
    """Start a rollback as a rollout like any other.

    Raises:
        PlanError: The service or the release does not exist.
        TransitionError: There is nothing to return to, or another rollout runs.
    """
    document = RollbackDocument(
        service=service,
        to=to or "last-good",
        reason=request.reason,
        allow_downtime=allow_downtime,
    )
    plan = resolve(document, {})

    def decide(reading: Reading) -> Begin | Attach | AlreadyDone:
        return decide_start(reading.service, plan, wish=to, roster=reading.present, request=request)

    return await carry_out(store, keys, lambda: read_known_service(store, keys, service), decide)
