"""What is wrong with a fleet, or may become so, and what mends it: the findings of `vctl doctor`.

Each finding stands alone: how bad it is, where, what, and the next thing to do. An *error* keeps
something from working now; a *warning* is what will, or may; *ok* is said for completeness. What is
not known is said as not known, and never as well.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from vctl_plans.capability import Capability, EngineFacts, Lack
from vctl_plans.codec import SCHEMA
from vctl_plans.inspection import SCRUB, DrainPhase
from vctl_plans.keys import Keys
from vctl_plans.node import NodeRecord, NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.rollout import listed, wanted
from vctl_plans.snapshot import Fleet

FREE_MEMORY = 0.2
"""Of the engine's: below it a load may be refused (DESIGN section 6)."""
FULL_DISK = 0.9
FULL_CACHE = 0.95
_IN_TROUBLE = {NodePhase.FAILED, NodePhase.QUARANTINED}


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    severity: Severity
    where: str  # ``node a``, ``service x``, ``etcd``, or ``fleet``
    what: str
    remedy: str = ""  # the next thing to do; empty: nothing needs to be done


def diagnose(fleet: Fleet, keys: Keys, *, conductor: bool) -> tuple[Finding, ...]:
    """Return what is found about a fleet, the worst first.

    Args:
        fleet: All of it, as read just now.
        keys: The fleet's keys.
        conductor: Whether one is elected.
    """
    names = sorted({*fleet.records, *fleet.reports})
    of_nodes = (finding for name in names for finding in _of_node(name, fleet, keys))
    return ordered([*_of_fleet(fleet, conductor=conductor), *of_nodes])


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, the worst first; else in their order."""
    rank = {severity: -n for n, severity in enumerate(Severity)}
    return tuple(sorted(findings, key=lambda finding: rank[finding.severity]))


def worst(findings: Iterable[Finding]) -> Severity:
    """Return how bad the worst of them is."""
    order = list(Severity)
    return max((f.severity for f in findings), key=order.index, default=Severity.OK)


def ok(where: str, what: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(severity=Severity.OK, where=where, what=what)


def warning(where: str, what: str, remedy: str) -> Finding:
    """Return a finding of what may go wrong."""
    return Finding(severity=Severity.WARNING, where=where, what=what, remedy=remedy)


def error(where: str, what: str, remedy: str) -> Finding:
    """Return a finding of what does not work."""
    return Finding(severity=Severity.ERROR, where=where, what=what, remedy=remedy)


# -- of the fleet ------------------------------------------------------------------------------


def _of_fleet(fleet: Fleet, *, conductor: bool) -> Iterator[Finding]:
    for problem in fleet.problems:
        yield error("fleet", problem, "see what wrote it; etcdctl get it, and write it right")
    if not fleet.records:
        yield error("fleet", "no node is present", "start vctl-agent on each, with --fleet")
    elif not conductor:
        yield error(
            "fleet",
            "no conductor is elected: no rollout goes on",
            "start an agent with --conduct on, or vctl-agent --conductor-only",
        )
    yield from _of_mixture(fleet.records)
    yield from _of_keys(fleet.present())


def _of_keys(present: Mapping[str, NodeReport]) -> Iterator[Finding]:
    """Find gateways that ask nobody for a key beside others that do: a way around those."""
    asks = {name: report.checks_keys for name, report in present.items()}
    open_ones = tuple(sorted(name for name, does in asks.items() if does is False))
    if open_ones and True in asks.values():
        yield error(
            "fleet",
            f"gateways ask clients for API keys, but not those of {listed(open_ones)}",
            "give every vctl-gateway the same --api-keys-file",
        )


def _of_mixture(records: Mapping[str, NodeRecord]) -> Iterator[Finding]:
    kinds = Counter(engine_text(r.facts) for r in records.values() if r.facts)
    if len(kinds) > 1:
        shown = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
        yield warning(
            "fleet", f"its engines are not alike: {shown}", "bring them to one version"
        )  # fmt: skip
    older = tuple(sorted(name for name, record in records.items() if record.schema < SCHEMA))
    if older:
        yield warning(
            "fleet", f"agents that are older than this vctl: {listed(older)}", "upgrade them"
        )  # fmt: skip


# -- of a node ---------------------------------------------------------------------------------


def _of_node(name: str, fleet: Fleet, keys: Keys) -> Iterator[Finding]:
    where, record, report = f"node {name}", fleet.records.get(name), fleet.reports.get(name)
    if record is None:
        yield warning(
            where,
            "absent: it has a report and no record",
            f"start its agent; if it is gone for good: etcdctl del {keys.report(name)}",
        )
        return
    if report is None or report.boot_id != record.boot_id:
        yield warning(
            where, "its agent has not reported since it started", "see the log of its vctl-agent"
        )
        return
    if report.drain:
        yield warning(
            where,
            f"takes no requests: {report.drain.sentence}"
            if report.drain.phase is not DrainPhase.WAITING
            else f"is {report.drain.sentence}",
            f"once the work is done: vctl node undrain {name}",
        )
    yield from _of_engine(where, record, report)
    yield from _of_limits(where, record.facts, report)
    yield from _of_serving(where, report, fleet)
    yield from _of_disk(where, report)
    for service, release in sorted(report.overrides.items()):
        yield warning(
            where,
            f"break-glass: its gateway serves {service} by release {release}, whatever the route"
            " says",
            f"on the node, once it may end: vctl-gateway override --service {service} --clear",
        )


def _of_engine(where: str, record: NodeRecord, report: NodeReport) -> Iterator[Finding]:
    if not report.incarnation:
        yield error(where, "its engine does not answer", "start it; see --engine-url of vctl-agent")
    if report.problem:
        yield error(where, f"its engine serves nothing: {report.problem}", "restart the engine")
    if report.exposed:
        yield _exposed(where, report.exposed)
    if record.facts is None:
        yield warning(
            where,
            "what its engine can do is not known: it has not answered since the agent runs",
            "see the log of its vctl-agent",
        )
        return
    yield ok(where, f"engine {engine_text(record.facts)}")
    for lack in record.facts.lacks:
        yield _lacking(where, lack)


def _exposed(where: str, address: str) -> Finding:
    """Judge an engine that listens beyond loopback."""
    if address.startswith(("0.0.0.0:", "[::]:")):
        return error(
            where,
            f"its engine listens on {address}: who reaches the node reaches it past the gateway",
            "start the engine with --host 127.0.0.1",
        )
    return warning(
        where,
        f"its engine is at {address}, which is not loopback: others may reach it past the gateway",
        "run it beside the agent on 127.0.0.1, or let only this node's agent and gateway reach it",
    )


def _lacking(where: str, lack: Lack) -> Finding:
    what = f"its engine cannot do this: {_CAN[lack.capability]} ({lack.capability})"
    if not lack.remedy:
        return ok(where, f"{what}; this kind of engine never can")
    remedy = f"{'restart' if lack.needs_restart else 'set'} it with {lack.remedy}"
    needed = lack.capability is Capability.ADAPTERS
    return error(where, what, remedy) if needed else warning(where, what, remedy)


_CAN = {
    Capability.ADAPTERS: "load adapters while it runs",
    Capability.SWAP_BASE: "change its base while it runs",
    Capability.FLUSH: "drop its caches when told",
    Capability.REPLACE: "give a name another adapter with nothing stale left",
    Capability.CACHE_SALT: "keep the caches of tenants apart",
    Capability.CACHED_TOKENS: "tell what came from its cache",
    Capability.LOGPROBS: "tell log-probabilities, which probes compare",
    Capability.LOAD: "tell how many requests it has",
}


def _of_limits(where: str, facts: EngineFacts | None, report: NodeReport) -> Iterator[Finding]:
    slots = slots_of(facts)
    if slots and report.adapters is not None and report.adapters >= slots:
        yield warning(
            where,
            f"{report.adapters} of {slots} adapter slots are used: the next release may not fit",
            "give the engine more slots (vLLM: --max-loras, --max-cpu-loras), or retain fewer",
        )
    if report.incarnation and report.free_memory is None:
        yield ok(where, "its engine does not tell how much memory is free")
    elif report.free_memory is not None and report.free_memory < FREE_MEMORY:
        yield warning(
            where,
            f"{report.free_memory:.0%} of its engine's memory are free: a load may be refused",
            "retain fewer releases, or give the engine more memory",
        )
    if report.kv_used is not None and report.kv_used >= FULL_CACHE:
        yield warning(
            where,
            f"its engine's KV cache is full to {report.kv_used:.0%}: requests have to wait",
            "send it fewer requests, or give it a larger cache",
        )


def slots_of(facts: EngineFacts | None) -> int | None:
    """Return how many adapters the engine holds; None: it does not tell."""
    if facts is None:
        return None
    return facts.max_resident or facts.max_adapters


def engine_text(facts: EngineFacts) -> str:
    """Return kind and version in a few words."""
    return f"{facts.kind} {facts.version}".strip() or "of no name"


def _of_serving(where: str, report: NodeReport, fleet: Fleet) -> Iterator[Finding]:
    if not report.gateway_ok:
        yield error(
            where,
            "its gateway does not act on its agent's last word",
            "see that vctl-gateway runs, and that both have the same --socket",
        )
    if not report.incarnation or report.problem:
        return  # what is wrong with its releases is wrong with its engine, and said there
    for release in report.releases:
        service = fleet.services.get(release.service)
        needed = wanted(service.route, service.rollout) if service else frozenset[int]()
        if release.phase in _IN_TROUBLE and release.number in needed:
            yield error(
                where,
                f"release {release.number} of {release.service} is {release.phase}:"
                f" {release.reason or 'no reason is told'}",
                "mend it, then: vctl rollout retry",
            )


def _of_disk(where: str, report: NodeReport) -> Iterator[Finding]:
    for checks in report.checks:
        rotten = [each for each in checks.found if checks.request == SCRUB and not each.is_good]
        for found in rotten:
            yield error(
                where,
                f"rotten on its disk: {found.problem_text}",
                "look at the disk; the artifact is brought anew before any engine gets it again",
            )
    if report.disk_used is not None and report.disk_used >= FULL_DISK:
        yield warning(
            where,
            f"{report.disk_used:.0%} of the room for artifacts are used",
            "vctl node gc; or less of --keep-artifacts, or more of --artifact-space",
        )
