"""`vctl rollout promote`: let a rollout go on to its next step now."""

from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, NoWatch, Reason, Service
from vctl_cli.session import session_of
from vctl_cli.steering import steered
from vctl_cli.watching import finish
from vctl_plans.events import PromoteAsked
from vctl_plans.store.port import Store


def promote(
    ctx: typer.Context,
    *,
    service: Service = "",
    full: Annotated[
        bool, typer.Option("--full", help="Go to the last step, which moves all traffic.")
    ] = False,
    reason: Reason = "",
    no_watch: NoWatch = False,
    junit: Junit = "",
) -> ExitCode:
    """Let a rollout go on to its next step now.

    A manual step waits for this; the rest of a soak is skipped by it. Traffic moves only while
    every node that counts holds the release ready. Promoted twice, a step is promoted once.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    event = PromoteAsked(by=request.by, reason=reason, is_full=full)

    async def run(store: Store) -> ExitCode:
        decision = await steered(store, session.target.keys, name, event)
        return await finish(session, store, decision, is_watched=not no_watch, junit=junit)

    return session.run(run)
