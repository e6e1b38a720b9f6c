"""How a rollout that was followed ended, for whoever asked for it."""

from vctl_cli.exitcodes import ExitCode
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Cause, Rollout


def has_ended(rollout: Rollout) -> bool:
    """Whether a watch of the rollout is over: at each end, and where a person is needed."""
    return rollout.phase.is_terminal or rollout.phase is RolloutPhase.PAUSED


def exit_code(rollout: Rollout, *, asked_back: bool) -> ExitCode:
    """Return the exit code of a rollout that has ended or waits for a person.

    Args:
        rollout: The rollout as it was last seen.
        asked_back: Whether the caller wanted traffic to return. A caller that wanted a release
            brought in must not read success when somebody took it back meanwhile.
    """
    done = ExitCode.UNCONFIRMED if rollout.unconfirmed else ExitCode.DONE
    match rollout.phase:
        case RolloutPhase.CONVERGED:
            return done
        case RolloutPhase.ROLLED_BACK:
            return done if asked_back else ExitCode.OTHERWISE
        case RolloutPhase.FAILED:
            if rollout.cause is not Cause.ABORTED:
                return ExitCode.FAILED
            return ExitCode.DONE if asked_back else ExitCode.OTHERWISE
        case RolloutPhase.PAUSED:
            return ExitCode.PAUSED
        case _:
            return ExitCode.OTHERWISE
