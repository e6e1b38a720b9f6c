"""One rollout as it goes on: whole scenes, each made of what a few watches last showed.

The watches are streams of their own, so what belongs to one transaction can be seen in parts. A
scene is shown only when the rollout's own last decision is in it; until then the next is awaited.
When another rollout has taken the key, the one that is followed is read from its archive. Of a
large fleet the conductor's summary is watched, and not ten thousand reports.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec

from vctl_cli.merging import merged
from vctl_cli.summing import read_summary, sees_large
from vctl_plans.codec import decode
from vctl_plans.keys import Keys
from vctl_plans.plan import Plan
from vctl_plans.rollout import Entry, Progress, Rollout, Roster, elapsed_s, figures, judged
from vctl_plans.snapshot import Fleet, Service, read_nodes, read_services
from vctl_plans.status import NodeStatus, needs, node_status
from vctl_plans.store.port import KeyValue, Store, Update
from vctl_plans.summary import ServiceSummary
from vctl_plans.verdict import Figure


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout at one moment."""

    service: Service
    rollout: Rollout
    entries: tuple[Entry, ...]  # its decisions so far, in order
    nodes: tuple[NodeStatus, ...]  # of the roster, by name; none where they are counted
    counted: ServiceSummary | None = None  # what the conductor counted of a large fleet
    plan: Plan | None = None  # None: it is gone
    figures: tuple[Figure, ...] = ()  # what each guardrail found last in the present phase
    judged: str = ""  # what the guardrails said last in the present phase
    elapsed_s: float = 0.0  # how long the phase had lasted at the conductor's last checkpoint
    is_live: bool = True  # False: the store is away, this is the last that was known


class Follow(msgspec.Struct, frozen=True):
    """What is followed."""

    service: str
    rollout: str
    since: int = 0  # the first decision that is news; those before it were made earlier


class _Fixed(msgspec.Struct, frozen=True):
    """What does not change while a rollout runs: read once."""

    plan: Plan | None = None
    roster: tuple[str, ...] = ()


async def scenes(store: Store, keys: Keys, follow: Follow) -> AsyncGenerator[Scene]:
    """Yield the rollout now and after every change, for ever.

    Raises:
        StoreError: A watch ended for good.
    """
    history = keys.rollout_history(follow.service, follow.rollout)
    progress = keys.progress(follow.service)
    of_nodes = (keys.summary,) if await sees_large(store, keys) else (keys.nodes, keys.reports)
    prefixes = (keys.service(follow.service), history, progress, *of_nodes)
    fixed: dict[tuple[str, str], _Fixed] = {}
    last: Scene | None = None
    async with aclosing(merged(store, prefixes)) as states:
        async for parts in states:
            rollout = _rollout(keys, follow, parts[0], parts[1])
            if rollout is None:
                continue
            which = (rollout.plan, rollout.roster)
            if which not in fixed:
                fixed[which] = await _fixed(store, keys, rollout)
            scene = _scene(keys, rollout, parts, fixed[which])
            if scene != last:
                last = scene
                yield scene


async def _fixed(store: Store, keys: Keys, rollout: Rollout) -> _Fixed:
    plan, roster = await store.get(keys.plan(rollout.plan)), await _roster(store, keys, rollout)
    return _Fixed(decode(plan.value, Plan, key=plan.key) if plan else None, roster)


async def _roster(store: Store, keys: Keys, rollout: Rollout) -> tuple[str, ...]:
    found = await store.get(keys.roster(rollout.roster))
    return decode(found.value, Roster, key=found.key).nodes if found else ()


def _rollout(keys: Keys, follow: Follow, present: Update, history: Update) -> Rollout | None:
    """Return the rollout that is followed, wherever it stands now."""
    for source, key in (
        (present, keys.rollout(follow.service)),
        (history, keys.archive(follow.service, follow.rollout)),
    ):
        entry = source.entries.get(key)
        if entry:
            rollout = decode(entry.value, Rollout, key=key)
            if rollout.id == follow.rollout and _has_last_decision(keys, rollout, history):
                return rollout
    return None


def _has_last_decision(keys: Keys, rollout: Rollout, history: Update) -> bool:
    is_archived = keys.archive(rollout.service, rollout.id) in history.entries
    return is_archived or keys.decision(rollout.service, rollout.id, rollout.seq) in history.entries


def _scene(keys: Keys, rollout: Rollout, parts: list[Update], fixed: _Fixed) -> Scene:
    present, history, progress, *of_nodes = parts
    progressed = _progress(keys, rollout, progress)
    services = read_services(keys, present.entries.values()).services
    service = services.get(rollout.service) or Service(name=rollout.service)
    is_counted = len(of_nodes) == 1
    return Scene(
        service=service,
        rollout=rollout,
        entries=_entries(keys, rollout, history.entries),
        nodes=() if is_counted else _nodes(keys, service, of_nodes, fixed.roster),
        counted=_counted(keys, service, of_nodes[0]) if is_counted else None,
        plan=fixed.plan,
        figures=figures(progressed, rollout),
        judged=judged(progressed, rollout),
        elapsed_s=elapsed_s(progressed, rollout),
        is_live=all(part.is_live for part in parts),
    )


def _nodes(
    keys: Keys, service: Service, parts: list[Update], roster: tuple[str, ...]
) -> tuple[NodeStatus, ...]:
    nodes = read_nodes(keys, *(part.entries.values() for part in parts))
    fleet = Fleet(services={service.name: service}, records=nodes.records, reports=nodes.reports)
    needed = needs(fleet)
    return tuple(node_status(node, fleet, needed) for node in sorted(roster))


def _counted(keys: Keys, service: Service, summary: Update) -> ServiceSummary:
    found, _ = read_summary(summary.entries.get(keys.summary))
    said = found.of(service.name) if found else None
    return said or ServiceSummary(service=service.name)


def _progress(keys: Keys, rollout: Rollout, progress: Update) -> Progress | None:
    entry = progress.entries.get(keys.progress(rollout.service))
    return decode(entry.value, Progress, key=entry.key) if entry else None


def _entries(keys: Keys, rollout: Rollout, found: Mapping[str, KeyValue]) -> tuple[Entry, ...]:
    """Return the decisions up to the rollout's own last; the history may be ahead of it."""
    archive = keys.archive(rollout.service, rollout.id)
    decided = (decode(found[key].value, Entry, key=key) for key in sorted(found) if key != archive)
    return tuple(entry for entry in decided if entry.seq <= rollout.seq)
