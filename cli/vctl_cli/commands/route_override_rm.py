"""`vctl route override rm`: groups get again what all others do."""

from typing import Annotated

import typer

from vctl_cli.deciding import carry_out
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import NoWatch, Reason, Service
from vctl_cli.reading import Reading, read_known_service
from vctl_cli.routes import override_named, read_route_from, route_view
from vctl_cli.session import session_of
from vctl_cli.watching import finish
from vctl_plans.keys import Keys
from vctl_plans.operate import Attach, Begin, Request
from vctl_plans.reverting import end_override
from vctl_plans.store.port import Store


def rm(
    ctx: typer.Context,
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="Name of one of the groups, or their digest.")
    ],
    *,
    service: Service = "",
    reason: Reason = "",
    no_watch: NoWatch = False,
) -> ExitCode:
    """End what groups have of their own.

    All groups of the plan that gave it to them get the service's stable release again, like
    everybody. The release that they had is not revoked; where nothing else wants it, nodes unload
    it.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)

    async def run(store: Store) -> ExitCode:
        decision = await removed(store, session.target.keys, name, group, request=request)
        return await finish(session, store, decision, is_watched=not no_watch, asked_back=True)

    return session.run(run)


async def removed(
    store: Store, keys: Keys, service: str, group: str, *, request: Request
) -> Begin | Attach:
    """Write the end of an override.

    Raises:
        PlanError: The service does not exist, or no groups by that name have an override.
        TransitionError: A rollout runs.
    """
    reading = await read_known_service(store, keys, service)
    known = await read_route_from(store, keys, reading.service)
    digest = override_named(route_view(known), group).groups

    def decide(now: Reading) -> Begin | Attach:
        return end_override(now.service, digest, roster=now.present, request=request)

    return await carry_out(store, keys, lambda: read_known_service(store, keys, service), decide)
