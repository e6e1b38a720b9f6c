"""How a decision becomes one transaction: the comparisons that fence it, and all that it writes.

Everything that a decision rests on is compared: the rollout and the route as they were read, and
for a conductor's decision the election too. So of any number of writers at most one goes through.
"""

from collections.abc import Iterable

import msgspec

from vctl_plans import basing
from vctl_plans.alert import Alert, decided
from vctl_plans.chronicle import traffic
from vctl_plans.codec import encode
from vctl_plans.ejecting import Ejection
from vctl_plans.errors import Conflict, Indeterminate
from vctl_plans.fuse import Fuse
from vctl_plans.keys import Keys
from vctl_plans.operate import Begin, Continue
from vctl_plans.overriding import Held
from vctl_plans.owning import Handover
from vctl_plans.peers import Peers
from vctl_plans.release import Actor, Release
from vctl_plans.rollout import Entry, Progress, Rollout, ServiceSpec
from vctl_plans.seen import Seen
from vctl_plans.snapshot import Service
from vctl_plans.store.port import (
    Comparison,
    CreateRevisionIs,
    Delete,
    KeyValue,
    ModRevisionIs,
    Operation,
    Put,
    Store,
    Txn,
)


def begin_txn(keys: Keys, service: Service, begin: Begin, *, at: str = "") -> Txn:
    """Return the transaction that starts a rollout: release, plan, roster, rollout, history.

    Args:
        keys: The fleet's keys.
        service: The reading that the decision rests on.
        begin: The decision.
        at: What the writer's own clock says, as `units.utc_text` puts it.
    """
    name, route = service.name, begin.route or service.current_route
    compare: list[Comparison] = _as_read(keys, service)
    write: list[Operation] = [
        Put(keys.plan(begin.plan.digest), encode(begin.plan)),
        Put(keys.roster(begin.roster.digest), encode(begin.roster)),
        Put(keys.rollout(name), encode(begin.rollout)),
        _entry(keys, begin.rollout, at, Seen(traffic=traffic(route))),
    ]
    if begin.replaced and begin.replaced != service.rollout:
        write.append(_entry(keys, begin.replaced, at, None))  # it was superseded: its last decision
    if not service.spec_revision:
        write.append(_first_spec(keys, service, begin.rollout.by))
        compare.append(ModRevisionIs(keys.spec(name), 0))
    if service.around.revision is not None:
        compare.append(ModRevisionIs(keys.base, service.around.revision))
    if begin.base:
        write.append(Put(keys.base, encode(begin.base)))
    if begin.release:
        compare.append(CreateRevisionIs(keys.release(name, begin.release.number), 0))
        write.append(Put(keys.release(name, begin.release.number), encode(begin.release)))
    if begin.groups:
        write.append(Put(keys.groups(begin.groups.digest), encode(begin.groups)))
    if begin.golden:
        write.append(Put(keys.golden(begin.golden.digest), encode(begin.golden)))
    if begin.route:
        write.append(Put(keys.route(name), encode(begin.route, over=service.route_bytes)))
    if begin.replaced:
        write.append(Put(keys.archive(name, begin.replaced.id), encode(begin.replaced)))
    return Txn(tuple(compare), tuple(write))


def continue_txn(
    keys: Keys, service: Service, turn: Continue, *, fence: int = 0, at: str = ""
) -> Txn:
    """Return the transaction of the running rollout's next decision, with the alerts of it.

    Args:
        keys: The fleet's keys.
        service: The reading that the decision rests on.
        turn: The decision.
        fence: create_revision of the election key, for a conductor's decision; 0 for a command's.
        at: What the writer's own clock says, as `units.utc_text` puts it.
    """
    name = service.name
    compare = _as_read(keys, service)
    if fence:
        compare.append(CreateRevisionIs(keys.conductor, fence))
    seen = turn.seen or Seen(traffic=traffic(turn.route or service.current_route))
    write: list[Operation] = [
        Put(keys.rollout(name), encode(turn.rollout, over=service.rollout_bytes)),
        _entry(keys, turn.rollout, at, seen),
    ]
    if turn.route:
        write.append(Put(keys.route(name), encode(turn.route, over=service.route_bytes)))
    base = basing.released(service, turn.before, turn.rollout)
    if base:
        write.append(Put(keys.base, encode(base)))
    own = decided(turn.before, turn.rollout, by_operator=not fence)
    write += _puts(keys, (*own, *turn.alerts))
    return Txn(tuple(compare), tuple(write))


def alert_txn(keys: Keys, alert: Alert, *, fence: int) -> Txn:
    """Return the transaction of an alert that no decision carries.

    It conflicts while the same alert still waits to be sent: it need not be told twice.
    """
    (put,) = _puts(keys, (alert,))
    compare = (CreateRevisionIs(keys.conductor, fence), CreateRevisionIs(put.key, 0))
    return Txn(compare, (put,))


def sent_txn(keys: Keys, key: str, revision: int, *, fence: int) -> Txn:
    """Return the transaction that forgets an alert, as it was written at *revision*."""
    compare = (CreateRevisionIs(keys.conductor, fence), ModRevisionIs(key, revision))
    return Txn(compare, (Delete(key),))


def summary_txn(keys: Keys, summary: bytes, *, fence: int) -> Txn:
    """Return the transaction that replaces the fleet's summary."""
    return Txn((CreateRevisionIs(keys.conductor, fence),), (Put(keys.summary, summary),))


def _puts(keys: Keys, alerts: Iterable[Alert]) -> list[Put]:
    return [Put(keys.alert(alert.id), encode(alert)) for alert in alerts]


def release_txn(keys: Keys, service: Service, release: Release, *, by: Actor) -> Txn:
    """Return the transaction that writes a new release, and the service when it is the first."""
    name = service.name
    key = keys.release(name, release.number)
    compare: list[Comparison] = [CreateRevisionIs(key, 0), *_as_read(keys, service)]
    write: list[Operation] = [Put(key, encode(release))]
    if not service.spec_revision:
        compare.append(ModRevisionIs(keys.spec(name), 0))
        write.append(_first_spec(keys, service, by))
    return Txn(tuple(compare), tuple(write))


def _first_spec(keys: Keys, service: Service, by: Actor) -> Put:
    """Return the write of a service's spec: the one that is wished, or a plain one."""
    spec = service.spec or ServiceSpec(service=service.name)
    return Put(keys.spec(service.name), encode(msgspec.structs.replace(spec, by=by)))


def eject_txn(keys: Keys, service: Service, done: Ejection, *, before: bytes, at: str = "") -> Txn:
    """Return the transaction that lets a service go: its route is retired into its spec.

    Releases, rollout and history stay: numbers are never used again, and what was revoked is known.

    Args:
        keys: The fleet's keys.
        service: The reading that the decision rests on.
        done: The decision.
        before: The spec's value as it was read.
        at: What the writer's own clock says, as `units.utc_text` puts it.
    """
    name, entry = service.name, msgspec.structs.replace(done.entry, at=at)
    compare = [*_as_read(keys, service), ModRevisionIs(keys.spec(name), service.spec_revision)]
    write: tuple[Operation, ...] = (
        Delete(keys.route(name)),
        Delete(keys.peers(name)),
        Put(keys.spec(name), encode(done.spec, over=before)),
        Put(keys.decision(name, entry.rollout, entry.seq), encode(entry)),
    )
    return Txn(tuple(compare), write)


def handover_txn(
    keys: Keys, service: Service, done: Handover, *, before: bytes, at: str = ""
) -> Txn:
    """Return the transaction that hands a service to another tenant.

    Args:
        keys: The fleet's keys.
        service: The reading that the decision rests on.
        done: The decision.
        before: The spec's value as it was read; empty: there was none.
        at: What the writer's own clock says, as `units.utc_text` puts it.
    """
    name, entry = service.name, msgspec.structs.replace(done.entry, at=at)
    return Txn(
        (ModRevisionIs(keys.spec(name), service.spec_revision),),
        (
            Put(keys.spec(name), encode(done.spec, over=before)),
            Put(keys.decision(name, entry.rollout, entry.seq), encode(entry)),
        ),
    )


def hold_txn(keys: Keys, service: Service, held: Held, *, at: str = "") -> Txn:
    """Return the transaction that holds groups to a release: the route, who they are, and why.

    Args:
        keys: The fleet's keys.
        service: The reading that the decision rests on.
        held: The decision.
        at: What the writer's own clock says, as `units.utc_text` puts it.
    """
    name, entry = service.name, msgspec.structs.replace(held.entry, at=at)
    write: tuple[Operation, ...] = (
        Put(keys.route(name), encode(held.route, over=service.route_bytes)),
        Put(keys.groups(held.groups.digest), encode(held.groups)),
        Put(keys.decision(name, entry.rollout, entry.seq), encode(entry)),
    )
    return Txn(tuple(_as_read(keys, service)), write)


def progress_txn(keys: Keys, service: str, progress: Progress, *, fence: int) -> Txn:
    """Return the transaction that checkpoints how long the phase has lasted."""
    return Txn(
        (CreateRevisionIs(keys.conductor, fence),),
        (Put(keys.progress(service), encode(progress)),),
    )


def peers_txn(keys: Keys, peers: Peers, *, before: KeyValue | None, fence: int) -> Txn:
    """Return the transaction that names a service's peers in place of *before*.

    They are made anew from what nodes say, so nothing of what stood there is handed on.
    """
    key = keys.peers(peers.service)
    return Txn(
        (
            CreateRevisionIs(keys.conductor, fence),
            ModRevisionIs(key, before.mod_revision if before else 0),
        ),
        (Put(key, encode(peers)),),
    )


def fuse_txn(keys: Keys, fuse: Fuse, *, before: KeyValue | None, fence: int) -> Txn:
    """Return the transaction that names who may be quarantined, in place of *before*."""
    key = keys.fuse(fuse.service)
    return Txn(
        (
            CreateRevisionIs(keys.conductor, fence),
            ModRevisionIs(key, before.mod_revision if before else 0),
        ),
        (Put(key, encode(fuse)),),
    )


def _as_read(keys: Keys, service: Service) -> list[Comparison]:
    return [
        ModRevisionIs(keys.rollout(service.name), service.rollout_revision),
        ModRevisionIs(keys.route(service.name), service.route_revision),
    ]


def _entry(keys: Keys, rollout: Rollout, at: str, seen: Seen | None) -> Put:
    entry = Entry(
        rollout=rollout.id,
        seq=rollout.seq,
        phase=rollout.phase,
        sentence=rollout.sentence,
        by=rollout.by,
        reason=rollout.reason,
        at=at,
        seen=seen,
    )
    return Put(keys.decision(rollout.service, rollout.id, rollout.seq), encode(entry))


async def commit_own(store: Store, keys: Keys, txn: Txn, rollout: Rollout) -> int:
    """Commit a decision, and find out by reading when the reply is lost.

    The proof is the decision's own entry in the history: its key is written once and for all. A
    transaction that comes through later than this reads finds its comparisons failing.

    Args:
        store: The store.
        keys: The fleet's keys.
        txn: What to write.
        rollout: The rollout as *txn* writes it.

    Returns:
        The revision of the write.

    Raises:
        Conflict: It was not written, since something had changed.
        StoreUnavailable: The outcome could not be found out.
    """
    key = keys.decision(rollout.service, rollout.id, rollout.seq)
    return await commit_proven(store, txn, proof=key)


async def commit_proven(store: Store, txn: Txn, *, proof: str) -> int:
    """Commit a transaction, and find out by reading *proof*, which only it writes.

    Raises:
        Conflict: It was not written, since something had changed.
        StoreUnavailable: The outcome could not be found out.
    """
    try:
        return await store.commit(txn)
    except Indeterminate as cause:
        found = await store.get(proof)
        if found and Put(proof, found.value) in txn.operations:
            return found.mod_revision
        raise Conflict(f"the write of {proof} did not take place") from cause
