"""What an operator says to a rollout that runs: abort it, or let it go on."""

from vctl_cli.deciding import carry_out
from vctl_cli.reading import read_known_service
from vctl_plans.events import AbortAsked, ResumeAsked
from vctl_plans.keys import Keys
from vctl_plans.operate import Continue, steer
from vctl_plans.store.port import Store


async def steered(
    store: Store, keys: Keys, service: str, event: AbortAsked | ResumeAsked
) -> Continue:
    """Write the decision that *event* leads to.

    Raises:
        PlanError: The service does not exist.
        TransitionError: No rollout runs, or its phase does not allow it.
    """
    return await carry_out(
        store,
        keys,
        lambda: read_known_service(store, keys, service),
        lambda reading: steer(reading.service, event),
    )
