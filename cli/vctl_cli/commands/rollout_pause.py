"""`vctl rollout pause`: stop a rollout where it is."""

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Reason, Service
from vctl_cli.session import session_of
from vctl_cli.steering import steered
from vctl_cli.watching import finish
from vctl_plans.events import PauseAsked
from vctl_plans.store.port import Store


def pause(ctx: typer.Context, *, service: Service = "", reason: Reason = "") -> ExitCode:
    """Stop a rollout where it is, until it is resumed.

    Traffic stays as it is split now, and nodes go on getting the release ready. What has passed of
    a soak is kept, as of the conductor's last checkpoint of it, at most 5s ago.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)
    event = PauseAsked(by=request.by, reason=reason)

    async def run(store: Store) -> ExitCode:
        decision = await steered(store, session.target.keys, name, event)
        return await finish(session, store, decision, is_watched=False)

    return session.run(run)
