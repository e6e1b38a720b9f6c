"""What vctl's exit codes mean (DESIGN section 11): scripts and CI depend on each of them."""

from enum import IntEnum

from vctl_plans.errors import (
    InvariantError,
    PlanError,
    SettingsError,
    StoreError,
    TransitionError,
    VctlError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0  # converged, rolled back as asked, verified, as asked
    FAILED = 1  # failed, or verification found a difference
    USAGE = 2  # usage, or a plan that does not validate
    OTHERWISE = 3  # ended otherwise than asked: rolled back, aborted, superseded
    PAUSED = 4  # waits for a person
    TIMED_OUT = 5  # the command's own --timeout ran out; the rollout goes on
    NO_STORE = 6  # etcd unreachable, or it refused
    NOT_NOW = 7  # not allowed in this phase
    UNCONFIRMED = 8  # done, but named nodes are unconfirmed
    BUG = 70
    INTERRUPTED = 130  # the rollout goes on


_BY_KIND: tuple[tuple[type[VctlError], ExitCode], ...] = (
    (PlanError, ExitCode.USAGE),
    (SettingsError, ExitCode.USAGE),
    (TransitionError, ExitCode.NOT_NOW),
    (StoreError, ExitCode.NO_STORE),
    (InvariantError, ExitCode.BUG),
)


def of_error(error: VctlError) -> ExitCode:
    """Return the code of what was raised on purpose."""
    found = (code for kind, code in _BY_KIND if isinstance(error, kind))
    return next(found, ExitCode.FAILED)
