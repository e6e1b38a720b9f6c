"""`vctl rollout retry`: the last rollout again."""

import typer

from vctl_cli.deciding import carry_out
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, NoWatch, Reason, Service
from vctl_cli.reading import Reading, read_known_service
from vctl_cli.session import session_of
from vctl_cli.watching import finish
from vctl_plans.codec import decode
from vctl_plans.errors import NotFound
from vctl_plans.keys import Keys
from vctl_plans.operate import Attach, Begin, Request
from vctl_plans.plan import Plan
from vctl_plans.rollout import Rollout
from vctl_plans.steering import retry as decide_retry
from vctl_plans.store.port import Store


def retry(
    ctx: typer.Context,
    *,
    service: Service = "",
    reason: Reason = "",
    no_watch: NoWatch = False,
    junit: Junit = "",
) -> ExitCode:
    """Start the last rollout again.

    After it failed or was aborted: the same plan with the same release, from its first step, on
    the nodes that are present now. A release that a rollback has revoked is refused.
    """
    session = session_of(ctx)
    name, request = session.service(service), session.request(reason)

    async def run(store: Store) -> ExitCode:
        decision = await tried_again(store, session.target.keys, name, request)
        return await finish(session, store, decision, is_watched=not no_watch, junit=junit)

    return session.run(run)


async def tried_again(store: Store, keys: Keys, service: str, request: Request) -> Begin | Attach:
    """Write the last rollout anew.

    Raises:
        PlanError: The service does not exist, or no node is present.
        TransitionError: The last rollout runs or converged, or its release is revoked.
    """
    plan = Plan(service=service, strategy="full-switch")

    async def read() -> Reading:
        nonlocal plan
        reading = await read_known_service(store, keys, service)
        if reading.service.rollout:
            plan = await _plan(store, keys, reading.service.rollout)
        return reading

    def decide(reading: Reading) -> Begin | Attach:
        return decide_retry(reading.service, plan, roster=reading.present, request=request)

    return await carry_out(store, keys, read, decide)


async def _plan(store: Store, keys: Keys, rollout: Rollout) -> Plan:
    found = await store.get(keys.plan(rollout.plan))
    if found is None:
        raise NotFound(f"the plan of rollout {rollout.id} is missing")
    return decode(found.value, Plan, key=found.key)
