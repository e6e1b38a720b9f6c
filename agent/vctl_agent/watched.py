"""Which services' gateways are to tell what they count, and how often.

Only while a guardrail needs it (DESIGN section 4): nothing is counted up, sent or written else.
"""

from vctl_plans.rollout import Rollout
from vctl_plans.snapshot import Fleet

SHORTEST_S = 2.0
"""Between two reports of a node."""
FLEET_WRITES_PER_S = 500
"""What a whole fleet may write; a large one reports less often."""


def is_watched(rollout: Rollout | None) -> bool:
    """Whether gateways are to tell what they count for this rollout."""
    return rollout is not None and rollout.watches and not rollout.phase.is_terminal


def watched(fleet: Fleet) -> tuple[str, ...]:
    """Return the services that are watched, in order."""
    return tuple(sorted(n for n, s in fleet.services.items() if is_watched(s.rollout)))


def report_interval_s(fleet: Fleet) -> float:
    """Return how often a node reports: a fleet stays under `FLEET_WRITES_PER_S`."""
    rollouts = (service.rollout for service in fleet.services.values())
    return max((interval_of(r) for r in rollouts if r and is_watched(r)), default=SHORTEST_S)


def interval_of(rollout: Rollout) -> float:
    """Return how often the nodes of one rollout report."""
    return max(SHORTEST_S, rollout.roster_size / FLEET_WRITES_PER_S)
