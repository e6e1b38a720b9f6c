"""Where a rollout's traffic is, in words that fit a line: the step, the soak's rest, the share."""

from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Rollout
from vctl_plans.route import Route
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import duration_text

BAR_CELLS = 20
_BY_STEPS = {RolloutPhase.SHIFTING, RolloutPhase.SOAKING, RolloutPhase.PAUSED}


def phase_words(rollout: Rollout) -> str:
    """Return the phase, and the step of a rollout that has several."""
    parts = [rollout.phase.value]
    is_on_a_step = rollout.phase in _BY_STEPS and rollout.has_moved and not rollout.is_going_back
    if rollout.steps > 1 and is_on_a_step:
        parts.append(f"step {rollout.step + 1}/{rollout.steps}")
    if rollout.awaits_promote:
        parts.append("waits for vctl rollout promote")
    return ", ".join(parts)


def soak_left_s(rollout: Rollout, elapsed_s: float) -> float:
    """Return what is left of the soak, *elapsed_s* into the phase."""
    return max(0.0, rollout.soak_s - rollout.soaked_s - elapsed_s)


def phase_text(rollout: Rollout, elapsed_s: float) -> str:
    """Return the phase, the step of a rollout that has several, and what is left of its soak.

    Args:
        rollout: The rollout.
        elapsed_s: How long its phase has lasted, as far as it is known.
    """
    parts = [phase_words(rollout)]
    if rollout.phase is RolloutPhase.SOAKING and rollout.promoted:
        parts.append("promoted")
    elif rollout.phase is RolloutPhase.SOAKING:
        left_s = soak_left_s(rollout, elapsed_s)
        whole = duration_text(rollout.soak_s)
        parts.append(
            f"{duration_text(left_s)} left of {whole}" if left_s else f"{whole} has passed"
        )
    return ", ".join(parts)


def traffic_text(route: Route) -> str:
    """Return a bar and the share of traffic that is on the newer of what serves, groups apart."""
    share = route.weight if route.candidate else FULL_WEIGHT
    serving = route.candidate or route.stable
    shown = f"{_bar(share)} {share:g} % on release {serving or 'none'}"
    apart = ", ".join(str(n) for n in sorted({o.release for o in route.overrides}))
    shown += f", groups on {apart}" if apart else ""
    return f"{shown}, requests wait" if route.hold else shown


def _bar(percent: float) -> str:
    filled = round(BAR_CELLS * percent / FULL_WEIGHT)
    return "[" + "#" * filled + "." * (BAR_CELLS - filled) + "]"
