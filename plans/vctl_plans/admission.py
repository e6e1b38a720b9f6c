"""Which adapters an engine takes: what is certain is refused before the engine is asked.

A node asks with what the verified copy says of itself, a start with what the release says of it.
What is unsure is told and refuses nothing: the probe after the load has the last word.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vctl_plans.capability import EngineFacts
from vctl_plans.capacity import rank_problem
from vctl_plans.errors import PlanError
from vctl_plans.likeness import Likeness, likeness
from vctl_plans.phase import Component
from vctl_plans.release import Release
from vctl_plans.rollout import listed

if TYPE_CHECKING:
    from vctl_plans.snapshot import Service
    from vctl_plans.weights import AdapterFacts

_CANNOT = {
    "vllm": frozenset({"DoRA", "modules_to_save"}),
    "sglang": frozenset({"DoRA"}),
    "torch": frozenset({"DoRA", "modules_to_save"}),
}
"""By kind of engine: features of adapters that it refuses whatever its version and settings."""


def refusal(adapter: "AdapterFacts", facts: EngineFacts, *, is_own_base: bool) -> str:
    """Return why the engine certainly does not take the adapter; empty: nothing speaks against it.

    Args:
        adapter: What the verified copy says of itself.
        facts: What the engine tells.
        is_own_base: Whether the engine holds the base that it was started with.
    """
    problem = rank_problem(adapter.max_rank, facts)
    if problem:
        return problem
    lacking = sorted(_CANNOT.get(facts.kind, frozenset()) & set(adapter.features))
    if lacking:
        return f"its adapter has {' and '.join(lacking)}, which {facts.kind} does not take"
    if is_own_base and likeness(adapter.base, facts.base) is Likeness.OTHER:
        return f"its adapter is of base {adapter.base}, and the engine serves {facts.base}"
    return ""


def doubt(base: str, facts: EngineFacts) -> str:
    """Return what is unsure of an adapter on this engine; empty: nothing is."""
    if likeness(base, facts.base) is not Likeness.UNSURE:
        return ""
    return f"its adapter is of base {base}, and the engine serves {facts.base}: are they the same?"


def admit(service: "Service", target: Release) -> tuple[str, ...]:
    """Return what is unsure of a release's adapter on the present engines.

    Raises:
        PlanError: It is certainly of another base.
    """
    adapter, around = target.adapter, service.around.room
    if not adapter or not around or Component.WEIGHTS in target.components:
        return ()
    return tuple(_of_bases(target.number, adapter.base_name, around.bases.items()))


def _of_bases(
    number: int, base: str, bases: Iterable[tuple[str, tuple[str, ...]]]
) -> Iterable[str]:
    for served, nodes in bases:
        found = likeness(base, served)
        said = f"release {number} has an adapter of base {base}, and engines serve {served}"
        if found is Likeness.OTHER:
            raise PlanError(f"{said} on {listed(nodes)}", path="release.adapter")
        if found is Likeness.UNSURE:
            yield f"{said} on {listed(nodes)}: are they the same?"
