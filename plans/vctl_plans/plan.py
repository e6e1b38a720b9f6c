"""The plan as it is stored and carried out: numbers only, every default filled in.

A plan's digest covers what it would do, so that the same wish typed twice is one plan. What a
person types is in `document`.
"""

from typing import Literal

import msgspec

from vctl_plans.codec import Value, digest
from vctl_plans.route import Consistency
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import Quota

Strategy = Literal["weighted", "user-group", "full-switch", "rollback"]


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step as it is carried out: how much traffic moves, and what is waited for after it."""

    weight: float = FULL_WEIGHT  # percent on the candidate from this step on
    soak_s: float = 0.0
    manual: bool = False  # after the soak, until an operator promotes


class DriftLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of `Drift`."""

    psi: float = 0.25
    severe_psi: float = 0.55
    kl: float = 0.3
    windows: int = 3
    pause: bool = False


class Watch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of `Guardrails`."""

    error_ratio: float = 1.5
    p99_ratio: float = 1.2
    min_requests: int = 200
    interval_s: float = 30.0
    consecutive: int = 1
    drift: DriftLimits | None = None
    free_memory: float | None = None  # the least share that must be free, 0 to 1
    queries: dict[str, str] = {}
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_inconclusive: Literal["extend", "pause", "proceed"] = "extend"


class Plan(Value, frozen=True, kw_only=True):
    """What is carried out: numbers only, every default filled in."""

    service: str
    strategy: Strategy
    target: dict[str, str] = {}  # component -> root, of what the plan changes; empty for a rollback
    to: int = 0  # of a rollback: the release to return to; 0: the last good one
    steps: tuple[PlanStep, ...] = (PlanStep(),)  # weights grow strictly, the last is 100
    ready: Quota = Quota(percent=100.0)
    max_failed: int = 0
    max_absent: Quota = Quota(percent=10.0)
    max_unready: Quota = Quota(percent=2.0)  # drained nodes that nobody waits for; at least 1
    max_unavailable: Quota = Quota(percent=10.0)  # of the roster, without a base; at least 1
    probes: str = ""  # digest of the `Golden` prompts that the release must pass first
    groups: str = ""  # digest of the `Groups` that get the release; empty for other strategies
    consistency: Consistency = Consistency.SESSION
    watch: Watch | None = None
    prepare_s: float = 600.0
    converge_s: float = 30.0
    drain_s: float = 30.0
    hold_s: float = 5.0
    retain: int = 1
    allow_downtime: bool = False  # a node may unload what serves before it loads the release
    free_memory: float | None = None  # the least share that a load must leave free, 0 to 1
    kv_used: float | None = None  # the largest share of the KV cache in use when traffic moves

    @property
    def digest(self) -> str:
        """The name of the plan: the same wish has the same digest."""
        return digest(self, context="plan")
