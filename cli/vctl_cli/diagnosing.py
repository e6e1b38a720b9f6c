"""What `doctor` reads, and its view: the nodes in a line each, and what was found."""

import time
from collections.abc import Iterable

import msgspec

from vctl_cli.exitcodes import ExitCode
from vctl_cli.reading import (
    Reader,
    fleet_of,
    fleet_prefixes,
    read_fast,
)
from vctl_cli.session import Session
from vctl_plans.diagnosis import (
    Finding,
    Severity,
    diagnose,
    engine_text,
    ordered,
    slots_of,
    worst,
)
from vctl_plans.errors import Rejected, StoreError, StoreUnavailable
from vctl_plans.etcdhealth import EtcdMember, of_etcd
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.port import Store

_MEMBER_TIMEOUT_S = 2.0
_ANSWERS_S = 45.0
"""A node gives its sources 20 s, and has begun to ask them by then."""


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One node in a line; None: it does not tell."""

    node: str
    is_present: bool
    engine: str  # kind and version; empty: not known
    adapters: int | None
    slots: int | None
    free_memory: float | None
    kv_used: float | None
    disk_used: float | None
    severity: Severity  # of the worst that was found there


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    fleet: str
    severity: Severity
    nodes: tuple[NodeHealth, ...]
    etcd: tuple[EtcdMember, ...]
    findings: tuple[Finding, ...]  # the worst first

    @property
    def exit_code(self) -> ExitCode:
        """How it ended: an error is a failure, a warning is none."""
        return ExitCode.FAILED if self.severity is Severity.ERROR else ExitCode.DONE


class _Read(msgspec.Struct, frozen=True):
    fleet: Fleet
    has_conductor: bool


def read_diagnosis(session: Session, *, asks_nodes: bool = False) -> Diagnosis:
    """Read all that a diagnosis stands on, and make it.

    Args:
        session: Says where.
        asks_nodes: Whether the nodes are asked what they can read at its source.
    """
    keys = session.target.keys
    found = read_fast(
        session, lambda reader: _read(reader, keys), lambda store: _read_from(store, keys)
    )
    members = tuple(_member(session, url) for url in session.target.settings.endpoints)
    more = _unreached(session, found.fleet) if asks_nodes and found.fleet.records else ()
    return diagnosis(found.fleet, keys, members, conductor=found.has_conductor, more=more)


def _unreached(session: Session, fleet: Fleet) -> tuple[Finding, ...]:
    """Have the nodes look for the artifacts that they may need, and wait for their answers."""
    from vctl_cli.asking import ask_nodes  # noqa: PLC0415  few want it, and it needs the store
    from vctl_plans.inspection import Reached, ReachRequest  # noqa: PLC0415
    from vctl_plans.node import NodeReport  # noqa: PLC0415
    from vctl_plans.reachability import of_reached  # noqa: PLC0415

    request, asked = session.request(""), set(fleet.records)

    def answer(report: NodeReport) -> Reached | None:
        return next((each for each in report.reached if each.request == request.id), None)

    async def ask(store: Store) -> dict[str, Reached]:
        return await ask_nodes(
            store,
            session.target.keys,
            ReachRequest(id=request.id, by=request.by),
            nodes=asked,
            answer=answer,
            timeout_s=session.target.timeout_s or _ANSWERS_S,
        )

    count = "1 node" if len(asked) == 1 else f"{len(asked)} nodes"
    session.screen.say(f"asking {count}: what can be read at its source?")
    answers = session.run(ask)
    return tuple(of_reached(answers, asked - set(answers), fleet))


def _read(reader: Reader, keys: Keys) -> _Read:
    parts = [reader.list(prefix).entries for prefix in fleet_prefixes(keys)]
    return _Read(fleet_of(keys, parts), bool(reader.get(keys.conductor)))


async def _read_from(store: Store, keys: Keys) -> _Read:
    parts = [(await store.list(prefix)).entries for prefix in fleet_prefixes(keys)]
    return _Read(fleet_of(keys, parts), bool(await store.get(keys.conductor)))


def _member(session: Session, url: str) -> EtcdMember:
    """Ask one member; each by itself, for the others answer while one is down."""
    settings = session.target.settings
    timeout_s = min(settings.timeout_s, _MEMBER_TIMEOUT_S)
    own = msgspec.structs.replace(settings, endpoints=(url,), timeout_s=timeout_s)
    reader = session.world.open_reader(own)
    try:
        return msgspec.structs.replace(reader.status(time.time), endpoint=url)
    except StoreUnavailable as problem:
        return EtcdMember(endpoint=url, problem=problem.message, is_away=True)
    except (Rejected, StoreError) as problem:  # it answers, and not this
        return EtcdMember(endpoint=url, problem=problem.message)
    finally:
        reader.close()


def diagnosis(
    fleet: Fleet,
    keys: Keys,
    members: tuple[EtcdMember, ...],
    *,
    conductor: bool,
    more: tuple[Finding, ...] = (),
) -> Diagnosis:
    """Return the view of a fleet and the members of its etcd, with what else was found."""
    of_fleet = diagnose(fleet, keys, conductor=conductor)
    findings = ordered([*of_etcd(members), *of_fleet, *more])
    names = sorted({*fleet.records, *fleet.reports})
    return Diagnosis(
        fleet=keys.fleet,
        severity=worst(findings),
        nodes=tuple(_node(name, fleet, findings) for name in names),
        etcd=members,
        findings=findings,
    )


def _node(name: str, fleet: Fleet, findings: Iterable[Finding]) -> NodeHealth:
    record, report = fleet.records.get(name), fleet.present().get(name)
    facts = record.facts if record else None
    return NodeHealth(
        node=name,
        is_present=record is not None,
        engine=engine_text(facts) if facts else "",
        adapters=report.adapters if report else None,
        slots=slots_of(facts),
        free_memory=report.free_memory if report else None,
        kv_used=report.kv_used if report else None,
        disk_used=report.disk_used if report else None,
        severity=worst(f for f in findings if f.where == f"node {name}"),
    )
