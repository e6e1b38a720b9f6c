"""Whether engines have places for what a start would have them hold, and what gives way to it.

Engines that take their memory when they start are judged by adapter slots: how many adapters they
hold, and how many they serve side by side, over all services of the fleet. An adapter counts by the
name that the engine knows it by, so releases of one root are one.

The rule that a change must keep: nothing that serves is ever unloaded to make room, unless the plan
allows downtime. What is retained for an instant rollback gives way, oldest first, and only by a
start's own write; an agent never decides it. What no engine tells is said, and refuses nothing.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vctl_plans.capability import EngineFacts
from vctl_plans.errors import PlanError
from vctl_plans.release import Release
from vctl_plans.rollout import listed, wanted

if TYPE_CHECKING:
    from vctl_plans.node import NodeRecord, NodeReport
    from vctl_plans.snapshot import Service

LEAST_FREE = 0.2
"""Of the memory that an engine loads into: what must be left after a load, unless a plan says."""

_FLAGS = {
    "vllm": ("--max-loras", "--max-cpu-loras"),
    "torch": ("--max-loras", ""),
    "sglang": ("--max-loras-per-batch", "--max-loaded-loras"),
}
"""By kind of engine: what sets how many adapters it serves side by side, and how many it holds."""

_COUNTS_ITS_BASE = {"sglang"}
"""Kinds in which the base model takes one of the places that are served side by side."""


class Least(msgspec.Struct, frozen=True):
    """The least that any of the present engines tells, and where."""

    limit: int
    nodes: tuple[str, ...]
    kind: str  # of the engine on the first of them


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines of the present nodes have places for, and what others take of it."""

    held: Least | None = None  # adapters that an engine holds; None: none tells
    served: Least | None = None  # adapters that it serves side by side
    rank: Least | None = None  # of an adapter
    bases: dict[str, tuple[str, ...]] = {}  # name of the base -> nodes
    unknown: tuple[str, ...] = ()  # nodes whose engine tells of no places
    others: frozenset[str] = frozenset()  # adapters that other services serve, or bring now
    kept: frozenset[str] = frozenset()  # adapters that other services retain


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How a release finds its place."""

    gives_way: tuple[int, ...] = ()  # retained releases of the service that make room for it
    exchanges: bool = False  # each node unloads what serves before it loads the release
    retain: int | None = None  # releases that may be retained in the end; None: as many as asked
    notes: tuple[str, ...] = ()  # for whoever starts it


def places(facts: EngineFacts | None) -> int | None:
    """Return how many adapters an engine holds; None: it does not tell.

    An engine that tells only how many it serves side by side holds at least those.
    """
    if facts is None:
        return None
    return facts.max_adapters if facts.max_resident is None else facts.max_resident


def room(records: Iterable["NodeRecord"], others: Iterable["Service"]) -> Room:
    """Return the room on the present nodes beside the *others* of the fleet's services."""
    known = sorted(records, key=lambda record: record.node)
    facts = {record.node: record.facts for record in known if record.facts}
    live: set[str] = set()
    kept: set[str] = set()
    for service in others:
        live |= adapters(service, _moving(service))
        kept |= adapters(service, service.current_route.instant)
    bases: dict[str, tuple[str, ...]] = {}
    for node, each in facts.items():
        bases[each.base] = (*bases.get(each.base, ()), node)
    return Room(
        held=_least({node: places(each) for node, each in facts.items()}, facts),
        served=_least({node: each.max_adapters for node, each in facts.items()}, facts),
        rank=_least({node: each.max_rank for node, each in facts.items()}, facts),
        bases=bases,
        unknown=tuple(r.node for r in known if places(r.facts) is None),
        others=frozenset(live),
        kept=frozenset(kept - live),
    )


def adapters(service: "Service", numbers: Iterable[int]) -> set[str]:
    """Return the adapters of some releases, by the names that engines know them by."""
    found = (service.releases[n].engine_name for n in numbers if n in service.releases)
    return {name for name in found if name}


def fit(service: "Service", target: Release, *, allow_downtime: bool) -> Fit:
    """Return how *target* finds its place beside what the route serves.

    Args:
        service: The service, with the room around it.
        target: The release to bring; it is loaded beside what serves now.
        allow_downtime: Whether a node may unload what serves before it loads.

    Raises:
        PlanError: It finds none.
    """
    around, name, route = service.around.room, target.engine_name, service.current_route
    live = adapters(service, route.serving)
    # What groups have of their own may be retained as well; it serves, and gives way to nothing.
    retained = [n for n in route.instant if n in service.releases and n not in route.serving]
    spare = _spare(service, target)
    if around is None or not name or name in live | adapters(service, retained):
        return Fit(retain=spare)  # nothing is loaded that is not there
    live |= around.others
    notes = _unknown(around)
    given: list[int] = []
    while retained and _is_short(around.held, live | {name} | around.kept, service, retained):
        given.append(retained.pop(0))
    is_short = _is_short(around.held, live | {name} | around.kept, service, retained)
    if around.served and len(live) > around.served.limit:
        least = f"engines serve {around.served.limit} side by side on {listed(around.served.nodes)}"
        notes += (f"{len(live)} adapters are served, and {least}: requests take turns",)
    elif around.served:
        is_short = is_short or len(live) + 1 > around.served.limit
    if not is_short:
        return Fit(gives_way=tuple(given), notes=notes, retain=spare)
    can_exchange = _can_exchange(service, around, name)
    if allow_downtime and can_exchange:
        return Fit(gives_way=(*given, *retained), exchanges=True, notes=notes, retain=0)
    raise _refusal(service, target, around, can_exchange=can_exchange)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """How many adapters engines would have to hold and to serve, and how many they can."""

    held: int  # with what is retained
    served: int  # side by side
    can_hold: Least | None = None  # None: no engine tells
    can_serve: Least | None = None


def demand(service: "Service", target: Release) -> Demand | None:
    """Return what *target* takes beside all that serves and is retained; None: no place of any."""
    around, name, route = service.around.room, target.engine_name, service.current_route
    if around is None or not name:
        return None
    live = adapters(service, route.serving) | around.others | {name}
    kept = adapters(service, route.instant) | around.kept
    return Demand(
        held=len(live | kept),
        served=len(live),
        can_hold=around.held,
        can_serve=around.served,
    )


def _spare(service: "Service", target: Release) -> int | None:
    """Return how many releases may be retained once *target* is stable; None: any number.

    What a service retains gives way to its own rollouts and to no other's. So where there are
    others, one place is left free: else none of them could change any more.
    """
    around = service.around.room
    if around is None or around.held is None or not around.others:
        return None
    groups = adapters(service, {o.release for o in service.current_route.overrides})
    taken = around.others | around.kept | groups | {target.engine_name}
    return max(0, around.held.limit - len(taken) - 1)


def no_place(facts: EngineFacts | None, *, name: str, held: set[str], before: set[str]) -> str:
    """Return why an engine has no place for the adapter *name* now; empty: it has.

    Args:
        facts: What the engine tells.
        name: The adapter to load.
        held: Adapters that it lists, or is loading.
        before: Adapters that are wanted more than *name*: their places are kept for them.
    """
    limit = places(facts)
    if limit is None or not name or name in held:
        return ""
    if len(held) >= limit:
        return f"the engine holds {len(held)} adapters and has places for {limit}"
    waiting = before - held - {name}
    if len(held) + len(waiting) >= limit:
        return (
            f"the engine has places for {limit} adapters, holds {len(held)},"
            f" and {len(waiting)} more come first"
        )
    return ""


def too_little_memory(
    *, free: float | None, total_bytes: int | None, size_bytes: int, least: float | None
) -> str:
    """Return why a load would leave too little memory; empty: it would not.

    Args:
        free: The share that is free; None: nobody tells.
        total_bytes: Of the whole; None: nobody tells, and the adapter counts as nothing.
        size_bytes: Of the adapter.
        least: The share that the plan wants left; None: it says nothing.
    """
    if free is None:
        return "" if least is None else f"free memory is not known, and {least:.0%} must be left"
    left = free - (size_bytes / total_bytes if total_bytes else 0.0)
    needed = LEAST_FREE if least is None else least
    if left >= needed:
        return ""
    return f"{max(0.0, left):.0%} of memory would be left after the load, and {needed:.0%} must be"


def crowded(nodes: Iterable[str], reports: Mapping[str, "NodeReport"], most: float | None) -> str:
    """Return which of *nodes* have more of their KV cache in use than a plan allows; empty: none.

    Args:
        nodes: Who is asked.
        reports: What they say.
        most: The largest share; None: the plan does not ask. Then nobody is crowded; else who
            does not tell is no better than who is.
    """
    if most is None:
        return ""
    told = {node: reports[node].kv_used for node in nodes if node in reports}
    silent = tuple(node for node, used in told.items() if used is None)
    full = {node: used for node, used in told.items() if used is not None and used > most}
    if full:
        return (
            f"{max(full.values()):.0%} of the KV cache is in use on {listed(tuple(full))},"
            f" and {most:.0%} may be"
        )
    return f"how much of the KV cache is in use is not told on {listed(silent)}" if silent else ""


def rank_problem(rank: int, facts: EngineFacts) -> str:
    """Return why an engine does not take adapters of *rank*; empty: it does, or does not tell."""
    if facts.max_rank is None or rank <= facts.max_rank:
        return ""
    return f"its adapter is of rank {rank}, and the engine takes {facts.max_rank} at most"


def refuse_rank(service: "Service", target: Release) -> None:
    """Refuse an adapter of a higher rank than some present engine takes.

    Raises:
        PlanError: With the numbers, the nodes and the setting.
    """
    adapter, around = target.adapter, service.around.room
    if not adapter or not around or not around.rank or adapter.rank <= around.rank.limit:
        return
    raise PlanError(
        f"release {target.number} has an adapter of rank {adapter.rank}, and engines take"
        f" {around.rank.limit} at most on {listed(around.rank.nodes)}",
        path="release.adapter",
        hint=f"start them with --max-lora-rank {_rank_setting(around.rank.kind, adapter.rank)}",
    )


_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def _rank_setting(kind: str, rank: int) -> int:
    """Return the value to set; vLLM takes only some."""
    steps = _VLLM_RANKS if kind == "vllm" else ()
    return next((step for step in steps if step >= rank), rank)


def _moving(service: "Service") -> frozenset[int]:
    """Return what a service serves or brings; of two releases that take turns, one."""
    rollout, route = service.rollout, service.current_route
    numbers = wanted(route, rollout) - (set(route.instant) - route.serving)
    if rollout and service.is_running and rollout.exchanges:
        numbers -= {rollout.to_release}
    return frozenset(numbers)


def _least(limits: dict[str, int | None], facts: dict[str, EngineFacts]) -> Least | None:
    told = {node: limit for node, limit in limits.items() if limit is not None}
    if not told:
        return None
    limit = min(told.values())
    nodes = tuple(node for node, each in told.items() if each == limit)
    return Least(limit, nodes, facts[nodes[0]].kind)


def _is_short(
    held: Least | None, needed: set[str], service: "Service", retained: list[int]
) -> bool:
    return held is not None and len(needed | adapters(service, retained)) > held.limit


def _can_exchange(service: "Service", around: Room, name: str) -> bool:
    """Whether *name* fits in the place of the stable release's adapter."""
    route = service.current_route
    if not adapters(service, {route.stable}):
        return False  # nothing serves, or the base alone does: it takes no place
    others = around.others | adapters(service, {o.release for o in route.overrides})
    after = others | {name}
    is_held = around.held is None or len(after | around.kept) <= around.held.limit
    return is_held and (around.served is None or len(after) <= around.served.limit)


def _unknown(around: Room) -> tuple[str, ...]:
    if not around.unknown:
        return ()
    return (f"how many adapters an engine holds is not told on {listed(around.unknown)}",)


def _refusal(service: "Service", target: Release, around: Room, *, can_exchange: bool) -> PlanError:
    route = service.current_route
    side = around.others | adapters(service, route.serving) | {target.engine_name}
    whole = side | around.kept
    is_held = around.held is not None and len(whole) > around.held.limit
    least = around.held if is_held else around.served
    assert least is not None  # noqa: S101  else there is nothing that it could exceed
    count, verb = (len(whole), "hold") if is_held else (len(side), "serve side by side")
    serving = ", ".join(str(n) for n in sorted(route.serving))
    beside = [f"release {serving}, which serves"] if serving else []
    theirs = len(around.others | around.kept if is_held else around.others)
    kept = f", {len(around.kept)} of them retained" if is_held and around.kept else ""
    beside += [f"{theirs} of other services{kept}"] if theirs else []
    hint = f"start them with {setting(least.kind, side=len(side), held=len(whole))}"
    if can_exchange:
        hint += "; or allow_downtime: true (--allow-downtime), to unload before loading"
    return PlanError(
        f"release {target.number} finds no place: engines {verb} {least.limit}"
        f" {'adapter' if least.limit == 1 else 'adapters'} on {listed(least.nodes)},"
        f" and {count} would be needed: its own, beside {' and '.join(beside)}",
        path="release",
        hint=hint,
    )


def setting(kind: str, *, side: int, held: int) -> str:
    """Return what to start an engine of *kind* with, so that it has so many places."""
    flags = _FLAGS.get(kind)
    if flags is None:
        return f"places for {held} adapters"
    serve, hold = flags
    own = side + (kind in _COUNTS_ITS_BASE)
    if not hold:
        return f"{serve} {held}"
    return f"{serve} {own}" + (f" {hold} {held}" if held > side else "")
