"""`vctl rollout watch`: follow a rollout to its end."""

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Follow
from vctl_cli.options import Junit, Service
from vctl_cli.reading import read_known_service
from vctl_cli.session import session_of
from vctl_cli.watching import watch as follow_to_end
from vctl_plans.errors import TransitionError
from vctl_plans.keys import Keys
from vctl_plans.store.port import Store


def watch(ctx: typer.Context, *, service: Service = "", junit: Junit = "") -> ExitCode:
    """Follow a rollout to its end.

    Ends at every end of the rollout and when it pauses; the exit code says how it stands.
    """
    session = session_of(ctx)
    name = session.service(service)

    async def run(store: Store) -> ExitCode:
        follow = await present_rollout(store, session.target.keys, name)
        return await follow_to_end(session, store, follow, junit=junit)

    return session.run(run)


async def present_rollout(store: Store, keys: Keys, service: str) -> Follow:
    """Return the service's rollout, running or last.

    Raises:
        PlanError: The service does not exist.
        TransitionError: It never had a rollout.
    """
    rollout = (await read_known_service(store, keys, service)).service.rollout
    if rollout is None:
        raise TransitionError(
            f"service {service} never had a rollout", hint="allowed now: vctl rollout start"
        )
    return Follow(service, rollout.id, since=rollout.seq + 1)
