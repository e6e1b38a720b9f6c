"""One rollout in full, as text for people."""

from vctl_cli.recounting import Moment, RolloutRecord
from vctl_cli.render.table import table
from vctl_plans.plan import Plan
from vctl_plans.release import Actor, Release
from vctl_plans.rollout import listed
from vctl_plans.seen import Rate, Seen
from vctl_plans.units import bytes_text, duration_text


def record_text(record: RolloutRecord) -> str:
    """Return the rollout, its plan, its decisions, and what was counted."""
    parts = [_head(record), _decisions(record.decisions)]
    counted = counted_text(record)
    return "\n\n".join([*parts, counted] if counted else parts)


def _head(record: RolloutRecord) -> str:
    rollout = record.rollout
    lines = [
        ("rollout", f"{rollout.id} ({rollout.strategy})"),
        ("service", f"{rollout.service}: {rollout.from_release or 'none'} -> {rollout.to_release}"),
        ("phase", f"{rollout.phase}, {duration_text(record.lasted_s)} after it began"),
    ]
    if rollout.back_to:
        lines.append(("back to", f"release {rollout.back_to} ({rollout.cause})"))
    if record.groups:
        lines.append(("groups", ", ".join(record.groups)))
    lines += [("plan", text) for text in plan_lines(record.plan)]
    lines += [line for release in record.releases for line in _release(release)]
    lines.append(
        ("nodes", f"{rollout.roster_size}: {listed(record.nodes) or 'not known any more'}")
    )
    if rollout.unconfirmed:
        lines.append(("not so", f"unconfirmed: {', '.join(rollout.unconfirmed)}"))
    return "\n".join(f"{head:<9} {text}" for head, text in lines)


def plan_lines(plan: Plan | None) -> list[str]:
    """Return what a plan says, a thing a line."""
    if plan is None:
        return ["not known any more"]
    steps = ", ".join(
        f"{step.weight:g} %"
        + (f" for {duration_text(step.soak_s)}" if step.soak_s else "")
        + (", then promote" if step.manual else "")
        for step in plan.steps
    )
    said = [
        *([] if plan.strategy == "rollback" else [f"steps: {steps}"]),
        f"ready {plan.ready}, at most {plan.max_failed} failed, {plan.max_absent} absent",
        (
            f"within {duration_text(plan.prepare_s)} to prepare,"
            f" {duration_text(plan.converge_s)} to converge, {duration_text(plan.drain_s)} to drain"
        ),
        f"{plan.consistency}, {plan.retain} retained",
    ]
    if plan.watch:
        watch = plan.watch
        said.append(
            f"guardrails: error ratio {watch.error_ratio:g}, p99 ratio {watch.p99_ratio:g},"
            f" {watch.min_requests} requests in {duration_text(watch.interval_s)};"
            f" on breach {watch.on_breach}, inconclusive {watch.on_inconclusive}"
        )
    return said


def _release(release: Release) -> list[tuple[str, str]]:
    parts = [
        f"{name} {made.root[:15]}"
        + (f", {bytes_text(made.size_bytes)}" if made.size_bytes else ", size not known")
        for name, made in sorted(release.components.items())
    ]
    return [(f"release {release.number}"[:9], f"{release.vector_text}: {'; '.join(parts)}")]


def _decisions(decisions: tuple[Moment, ...]) -> str:
    rows, asked = [], ""
    for moment in decisions:
        entry = moment.entry
        own = asked_text(entry.by, entry.reason)
        note = f"  [{own}]" if own and own != asked else ""
        asked = own or asked
        rows.append((
            f"+{duration_text(moment.at_s)}", entry.at or "-", entry.phase.value,
            traffic_words(entry.seen), entry.sentence + note,
        ))  # fmt: skip
    return table(("AFTER", "TIME", "PHASE", "TRAFFIC", "DECISION"), rows)


def asked_text(by: Actor, reason: str) -> str:
    """Return who asked, and why."""
    who = "@".join(part for part in (by.user, by.host) if part)
    who = " ".join(part for part in (f"by {who}" if who else "", by.via) if part)
    return ": ".join(part for part in (who, reason) if part)


def traffic_words(seen: Seen | None) -> str:
    """Return how traffic was split; - where it was not kept."""
    if seen is None:
        return "-"
    traffic = seen.traffic
    if not traffic.stable:
        return "none"
    share = f"{traffic.weight:g} % on {traffic.candidate}" if traffic.candidate else ""
    groups = f"groups on {','.join(map(str, traffic.groups))}" if traffic.groups else ""
    return ", ".join(part for part in (share or f"100 % on {traffic.stable}", groups) if part)


def counted_text(record: RolloutRecord) -> str:
    """Return the figures of all windows as a table; empty: nothing was counted."""
    rows = [
        (
            f"+{duration_text(moment.at_s - took_s(moment) + window.until_s)}",
            *rate_words(window.candidate),
            *rate_words(window.stable),
            "of earlier" if window.is_earlier else "",
        )
        for moment in record.decisions
        if moment.entry.seen
        for window in moment.entry.seen.windows
    ]
    head = ("AFTER", "REQUESTS", "FAILED", "P99", "STABLE'S", "FAILED", "P99", "")
    return table(head, rows) if rows else ""


def took_s(moment: Moment) -> float:
    """Return how long the phase lasted that a decision ended; 0 where that is not known."""
    seen = moment.entry.seen
    return seen.took_s if seen and seen.took_s is not None else 0.0


def rate_words(rate: Rate) -> tuple[str, str, str]:
    """Return how many requests, the share that failed, and the 99th percentile of latency."""
    share = "-" if rate.error_rate is None else f"{rate.error_rate:.2%}"
    return str(rate.requests), share, "-" if rate.p99_s is None else f"{rate.p99_s * 1000:.0f} ms"
