"""`vctl rollout abort`: give the running rollout up."""

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, NoWatch, Reason, Service
from vctl_cli.session import session_of
from vctl_cli.steering import steered
from vctl_cli.watching import finish
from vctl_plans.events import AbortAsked
from vctl_plans.store.port import Store


def abort(
    ctx: typer.Context,
    *,
    service: Service = "",
    reason: Reason = "",
    no_watch: NoWatch = False,
    junit: Junit = "",
) -> ExitCode:
    """Give a rollout up; nothing is revoked.

    Traffic returns to the release that served before. The release that was brought in may be
    rolled out again.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    session.confirm(f"Give up the rollout of {name}?")
    event = AbortAsked(by=request.by, reason=reason)

    async def run(store: Store) -> ExitCode:
        decision = await steered(store, session.target.keys, name, event)
        return await finish(
            session, store, decision, is_watched=not no_watch, asked_back=True, junit=junit
        )

    return session.run(run)
