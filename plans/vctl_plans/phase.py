"""The phases of a rollout and of a release on a node (DESIGN sections 6 and 7)."""

from enum import StrEnum


class RolloutPhase(StrEnum):
    """Where a rollout is."""

    PREPARING = "preparing"
    SHIFTING = "shifting"
    SOAKING = "soaking"
    SETTLING = "settling"
    ROLLING_BACK = "rolling_back"
    PAUSED = "paused"
    CONVERGED = "converged"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    SUPERSEDED = "superseded"

    @property
    def is_terminal(self) -> bool:
        """Whether the rollout has ended for good; a paused one has not."""
        return self in _TERMINAL


_TERMINAL = frozenset(
    {
        RolloutPhase.CONVERGED,
        RolloutPhase.ROLLED_BACK,
        RolloutPhase.FAILED,
        RolloutPhase.SUPERSEDED,
    }
)


class NodePhase(StrEnum):
    """Where a release is on a node."""

    ABSENT = "absent"
    FETCHING = "fetching"
    VERIFYING = "verifying"
    STAGED = "staged"
    LOADING = "loading"
    PROBING = "probing"
    READY = "ready"
    DRAINING = "draining"
    UNLOADED = "unloaded"
    FAILED = "failed"
    QUARANTINED = "quarantined"

    @property
    def is_resident(self) -> bool:
        """Whether the engine may hold the release."""
        return self in _RESIDENT


_RESIDENT = frozenset(
    {
        NodePhase.LOADING,
        NodePhase.PROBING,
        NodePhase.READY,
        NodePhase.DRAINING,
        NodePhase.QUARANTINED,
    }
)


class Component(StrEnum):
    """A changeable part of a service."""

    WEIGHTS = "weights"
    ADAPTER = "adapter"
    PROMPT = "prompt"
    INDEX = "index"
