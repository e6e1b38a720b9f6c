"""What a rollout would come to, as a few lines for people; the worst news last."""

from vctl_cli.foreseeing import Memory, PlanView, Refusal
from vctl_plans.capacity import Demand, Least
from vctl_plans.forecast import ComponentChange
from vctl_plans.plan import PlanStep
from vctl_plans.rollout import listed
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.units import bytes_text, duration_text

_OUTCOMES = {
    "start": "would start",
    "follow": "runs already: it would be followed",
    "nothing": "has converged already: nothing would be done",
    "refused": "would not go through",
}
DIGITS = 12


def plan_text(view: PlanView) -> str:
    """Return the view as lines."""
    running = f" ({view.rollout})" if view.rollout else ""
    lines = [("rollout", f"{view.strategy} of {view.service}: {_OUTCOMES[view.outcome]}{running}")]
    if view.release:
        lines += _of_release(view)
    if view.nodes and view.release:
        lines += _of_nodes(view)
    if view.outcome != "nothing" and view.release:
        lines += _of_time(view)
    lines += [("to know", note) for note in view.notes]
    lines += [("refused" if not n else "", _refusal(why)) for n, why in enumerate(view.refusals)]
    return "\n".join(f"{head:<9} {text}".rstrip() for head, text in lines)


def _refusal(why: Refusal) -> str:
    hint = why.hint.replace("\n", "\n" + " " * 10)
    return f"{why.message}" + (f"\n{'':<12}{hint}" if hint else "")


def _of_release(view: PlanView) -> list[tuple[str, str]]:
    made = ", made by the start" if view.is_new else ""
    lines = [
        ("release", f"{view.from_release or 'none'} -> {view.release}{made}"),
        ("vector", f"{view.vector_before or 'none'} -> {view.vector_after}"),
    ]
    return lines + [(each.component, _component(each)) for each in view.components]


def _component(each: ComponentChange) -> str:
    after = each.after[: 3 + DIGITS] or "known once nodes have hashed it"
    if not each.is_changed:
        return f"{after}, as it is"
    before = each.before[: 3 + DIGITS] or "none"
    size = bytes_text(each.size_bytes) if each.size_bytes else "size not known"
    return f"{before} -> {after}, {size}, from {each.source}"


def _of_nodes(view: PlanView) -> list[tuple[str, str]]:
    named = listed(tuple(node.node for node in view.nodes))
    have = sum(not node.fetch_bytes for node in view.nodes)
    lines = [("nodes", f"{len(view.nodes)}: {named}"), ("fetch", _fetch(view, have))]
    if view.places:
        lines += [("places", text) for text in _places(view.places)]
    if view.memory:
        lines.append(("memory", _memory(view.memory)))
    if view.gives_way:
        numbers = ", ".join(map(str, view.gives_way))
        lines.append(("gives way", f"release {numbers}, kept for an instant rollback"))
    return lines


def _memory(told: Memory) -> str:
    must = f"{told.must_be_free:.0%} must be left by a load that allocates"
    return f"{must}; least free now {told.least_free:.0%}, on {told.node}"


def _fetch(view: PlanView, have: int) -> str:
    unknown = f"; size not known: {', '.join(view.unknown_sizes)}" if view.unknown_sizes else ""
    if not view.fetch_bytes:
        return f"nothing: all bytes are on every node{unknown}" if not unknown else unknown[2:]
    some = f", {have} have all of it" if have else ""
    each, whole = bytes_text(view.fetch_bytes_a_node), bytes_text(view.fetch_bytes)
    return f"at most {each} a node, {whole} in all{some}{unknown}"


def _places(needed: Demand) -> list[str]:
    """Return what engines would have to hold, and the least that one of them can.

    That none tells is a note of the start's own.
    """
    told = [
        _place(needed.held, "held", needed.can_hold),
        _place(needed.served, "served side by side", needed.can_serve),
    ]
    return [each for each in told if each]


def _place(count: int, what: str, least: Least | None) -> str:
    if least is None:
        return ""
    return f"{count} of {least.limit} adapters {what}, on {listed(least.nodes)}"


def _of_time(view: PlanView) -> list[tuple[str, str]]:
    manual = sum(step.manual for step in view.steps)
    soaks = f"{duration_text(view.least_s)} at least, beside" if view.least_s else "that of"
    people = f"; {manual} wait for vctl rollout promote" if manual > 1 else ""
    people = "; 1 waits for vctl rollout promote" if manual == 1 else people
    gate = f"{view.ready} of {len(view.nodes)} nodes ready within {duration_text(view.prepare_s)}"
    lines = [("gate", gate)]
    if view.strategy != "rollback":
        lines.append(("steps", _steps(view.steps) + people))
    if view.wave_size:
        lines.append(("waves", f"{view.wave_size} nodes at a time change what they hold"))
    kept = ", ".join(map(str, view.retained)) or "none"
    lines.append(("time", f"{soaks} fetching and loading"))
    if view.outcome == "start":
        lines.append(("retained", f"{kept}, for an instant rollback"))
    return lines


def _steps(steps: tuple[PlanStep, ...]) -> str:
    def soak(step: PlanStep) -> str:
        return f" for {duration_text(step.soak_s)}" if step.soak_s else ""

    if len(steps) == 1 and steps[0].weight == FULL_WEIGHT:
        return f"all at once{soak(steps[0]).replace(' for ', ', soak ')}"
    return ", ".join(f"{step.weight:g} %{soak(step)}" for step in steps)
