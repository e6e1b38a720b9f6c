"""`vctl rollout resume`: let a paused rollout go on."""

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, NoWatch, Reason, Service
from vctl_cli.session import session_of
from vctl_cli.steering import steered
from vctl_cli.watching import finish
from vctl_plans.events import ResumeAsked
from vctl_plans.store.port import Store


def resume(
    ctx: typer.Context,
    *,
    service: Service = "",
    reason: Reason = "",
    no_watch: NoWatch = False,
    junit: Junit = "",
) -> ExitCode:
    """Let a paused rollout go on.

    It goes on from the phase in which it paused, with that phase's deadline anew; of a soak only
    the rest is waited for. A manual step is let go on by vctl rollout promote instead.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    event = ResumeAsked(by=request.by, reason=reason)

    async def run(store: Store) -> ExitCode:
        decision = await steered(store, session.target.keys, name, event)
        return await finish(session, store, decision, is_watched=not no_watch, junit=junit)

    return session.run(run)
