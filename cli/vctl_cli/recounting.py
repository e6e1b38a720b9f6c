"""One rollout in full: what `rollout show` tells, read from the history and what it names.

Times are elapsed times since the rollout began. A conductor's decision says how long the phase
lasted that it ended; of an operator's only the clock of the writer is known, to the second.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from vctl_cli.reading import Reader, read_fast, read_fleet, service_of
from vctl_cli.session import Session
from vctl_plans.codec import decode
from vctl_plans.errors import PlanError, TransitionError
from vctl_plans.groups import Groups
from vctl_plans.keys import Keys
from vctl_plans.names import suggestion
from vctl_plans.plan import Plan
from vctl_plans.release import Release
from vctl_plans.rollout import Entry, Progress, Rollout, Roster, elapsed_s
from vctl_plans.snapshot import read_services
from vctl_plans.store.port import KeyValue, Store


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, and when."""

    at_s: float  # since the rollout began
    entry: Entry


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout, the plan that it carries out, and all that was decided."""

    rollout: Rollout
    plan: Plan | None  # None: it cannot be found any more
    nodes: tuple[str, ...]  # the roster
    groups: tuple[str, ...]  # names of those that it is for
    releases: tuple[Release, ...]  # those that it has to do with
    lasted_s: float  # until it ended, or as far as the conductor had it last
    decisions: tuple[Moment, ...]


class _Found(msgspec.Struct, frozen=True):
    """What was read: entries under each prefix, and each key's value."""

    listed: tuple[tuple[KeyValue, ...], ...]
    got: tuple[KeyValue | None, ...]


def read_record(session: Session, service: str, name: str) -> RolloutRecord:
    """Read one rollout.

    Args:
        session: Says where.
        service: Whose rollout.
        name: Its id, or the beginning of it; empty: the one that runs, or ran last.

    Raises:
        PlanError: There is no such service or rollout.
        TransitionError: The service never had a rollout.
    """
    keys = session.target.keys
    first = _read(session, (keys.history(service), keys.service(service)), ())
    history, own = first.listed
    if not own:
        service_of(keys, read_fleet(session), service)  # refuses it, with a close miss
    rollout = _rollout(keys, service, name, history=history, own=own)
    named = (
        keys.plan(rollout.plan),
        keys.roster(rollout.roster),
        *([keys.groups(rollout.groups)] if rollout.groups else []),
        keys.progress(service),
    )
    got = dict(zip(named, _read(session, (), named).got, strict=True))
    roster, groups = got[keys.roster(rollout.roster)], got.get(keys.groups(rollout.groups))
    plan, progress = got[keys.plan(rollout.plan)], got[keys.progress(service)]
    moments = timed(_entries(keys, history, rollout))
    known = read_services(keys, own).services[service].releases
    numbers = sorted({rollout.from_release, rollout.to_release, rollout.back_to} & set(known))
    return RolloutRecord(
        rollout=rollout,
        plan=decode(plan.value, Plan, key=plan.key) if plan else None,
        nodes=decode(roster.value, Roster, key=roster.key).nodes if roster else (),
        groups=tuple(g.name for g in decode(groups.value, Groups).groups) if groups else (),
        releases=tuple(known[number] for number in numbers),
        lasted_s=(moments[-1].at_s if moments else 0.0) + _since(rollout, progress),
        decisions=moments,
    )


def _since(rollout: Rollout, progress: KeyValue | None) -> float:
    """Return how long the present phase has lasted; nothing of a rollout that has ended."""
    if rollout.phase.is_terminal or progress is None:
        return 0.0
    return elapsed_s(decode(progress.value, Progress, key=progress.key), rollout)


def _read(session: Session, prefixes: Sequence[str], keys: Sequence[str]) -> _Found:
    def read(reader: Reader) -> _Found:
        listed = tuple(tuple(reader.list(prefix).entries) for prefix in prefixes)
        return _Found(listed, tuple(reader.get(key) for key in keys))

    async def read_from(store: Store) -> _Found:
        listed = tuple([tuple((await store.list(prefix)).entries) for prefix in prefixes])
        return _Found(listed, tuple([await store.get(key) for key in keys]))

    return read_fast(session, read, read_from)


def _rollout(
    keys: Keys, service: str, name: str, *, history: Sequence[KeyValue], own: Sequence[KeyValue]
) -> Rollout:
    """Return the rollout of this id, from the service's own key or from its archive."""
    known = read_services(keys, own).services[service]
    if known.rollout is None:
        raise TransitionError(
            f"service {service} never had a rollout", hint="allowed now: vctl rollout start"
        )
    archived = {
        entry.key.split("/")[-2]: entry
        for entry in history
        if entry.key == keys.archive(service, entry.key.split("/")[-2])
    }
    ids = sorted({*archived, known.rollout.id})
    wanted = _named(ids, name or known.rollout.id, service)
    if wanted == known.rollout.id:
        return known.rollout
    return decode(archived[wanted].value, Rollout, key=archived[wanted].key)


def _named(ids: Sequence[str], name: str, service: str) -> str:
    found = [name] if name in ids else [each for each in ids if each.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        hint = "one of " + ", ".join(found[-10:])
        raise PlanError(f"{name!r} is the beginning of {len(found)} rollouts", path="id", hint=hint)
    raise PlanError(
        f"{service} has no rollout {name!r}", path="id", hint=suggestion(name, ids[-10:])
    )


def _entries(keys: Keys, history: Sequence[KeyValue], rollout: Rollout) -> list[Entry]:
    prefix = keys.rollout_history(rollout.service, rollout.id)
    end = keys.archive(rollout.service, rollout.id)
    own = [entry for entry in history if entry.key.startswith(prefix) and entry.key != end]
    own.sort(key=lambda entry: entry.create_revision)
    return [decode(entry.value, Entry, key=entry.key) for entry in own]


def timed(entries: Sequence[Entry]) -> tuple[Moment, ...]:
    """Return decisions with the time since the first of them."""
    found: list[Moment] = []
    at_s = 0.0
    for n, entry in enumerate(entries):
        if n:
            at_s += _took_s(entries[n - 1], entry)
        found.append(Moment(at_s=round(at_s, 3), entry=entry))
    return tuple(found)


def _took_s(before: Entry, entry: Entry) -> float:
    """Return how long the phase lasted that *entry* ended, as far as anybody knows."""
    if entry.seen and entry.seen.took_s is not None:
        return entry.seen.took_s
    try:
        began, ended = (datetime.fromisoformat(each.at) for each in (before, entry))
    except ValueError:
        return 0.0
    return max(0.0, (ended - began).total_seconds())
