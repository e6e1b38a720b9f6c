"""What an operator says to a rollout that runs: stop, go on, skip the wait, give it up."""

from vctl_cli.deciding import carry_out
from vctl_cli.reading import Reading, read_known_service, read_progress_from
from vctl_plans.errors import TransitionError
from vctl_plans.events import PromoteAsked, Steer
from vctl_plans.keys import Keys
from vctl_plans.operate import Attach, Continue
from vctl_plans.rollout import Progress, Rollout, elapsed_s
from vctl_plans.steering import steer
from vctl_plans.store.port import Store


async def steered(store: Store, keys: Keys, service: str, event: Steer) -> Continue | Attach:
    """Write the decision that *event* leads to.

    Raises:
        PlanError: The service does not exist.
        TransitionError: No rollout runs, or its phase does not allow it.
    """
    progress: Progress | None = None
    first: Rollout | None = None

    async def read() -> Reading:
        nonlocal progress
        reading = await read_known_service(store, keys, service)
        progress = await read_progress_from(store, keys, service)
        return reading

    def decide(reading: Reading) -> Continue | Attach:
        nonlocal first
        rollout = reading.service.rollout
        if isinstance(event, PromoteAsked):
            _refuse_another_step(first, rollout)
        first = first or rollout
        passed_s = elapsed_s(progress, rollout) if rollout else 0.0
        return steer(reading.service, event, elapsed_s=passed_s)

    return await carry_out(store, keys, read, decide)


def _refuse_another_step(first: Rollout | None, now: Rollout | None) -> None:
    """Refuse to promote a step that was not there when it was asked.

    (1) Two people promote step 1; (2) one wins, the conductor goes on, step 2 soaks; (3) the other
    one's write conflicts and is decided anew: it would skip a soak that nobody wanted to skip.
    """
    if first and now and (first.id, first.step) != (now.id, now.step):
        raise TransitionError(
            f"step {first.step + 1} of rollout {first.id} is over already: it is at step"
            f" {now.step + 1} of {now.steps}",
            hint="see vctl rollout status, and promote that one if it is meant",
        )
