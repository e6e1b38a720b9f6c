"""`rollout show --html`: one page that needs nothing else, with the rollout's plots in it.

The rule to keep: no script, no font, no picture and no address of elsewhere: the page can be
attached to a ticket and says the same in ten years. It reads by day, by night, and on paper.
"""

from importlib import resources

from vctl_cli.recounting import Moment, RolloutRecord
from vctl_cli.render import plots
from vctl_cli.render.record import asked_text, plan_lines, traffic_words
from vctl_cli.render.svg import text
from vctl_plans.phase import RolloutPhase
from vctl_plans.release import Release
from vctl_plans.rollout import Cause, Rollout, listed
from vctl_plans.units import bytes_text, duration_text

_ENDS = {
    RolloutPhase.CONVERGED: "good",
    RolloutPhase.ROLLED_BACK: "bad",
    RolloutPhase.FAILED: "bad",
    RolloutPhase.SUPERSEDED: "wait",
    RolloutPhase.PAUSED: "wait",
}


def page(record: RolloutRecord) -> str:
    """Return the whole page."""
    rollout = record.rollout
    title = f"{rollout.service}: release {rollout.from_release or 'none'} to {rollout.to_release}"
    return "".join([
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{text(title)}</title><style>{_style()}</style></head><body><main>\n",
        _head(record, title),
        _section("Traffic by release", plots.traffic(record)),
        _section("Nodes that hold each release ready", plots.holders(record)),
        _section("Requests that failed", plots.errors(record)),
        _section("99th percentile of latency", plots.latency(record)),
        _section("When nodes had followed", plots.convergence(record)),
        _section("Decisions", _decisions(record)),
        _section("Releases", _releases(record.releases)),
        _section("Plan", _plan(record)),
        _section("Nodes", f"<p>{text(', '.join(record.nodes) or 'not known any more')}</p>"),
        "\n</main></body></html>\n",
    ])  # fmt: skip


def _style() -> str:
    return resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")


def _section(title: str, content: str) -> str:
    return f"<section><h2>{text(title)}</h2>{content}</section>\n"


def tone(rollout: Rollout) -> str:
    """Return how a rollout ended, as a colour: a rollback that was asked for is no bad end."""
    if rollout.phase is RolloutPhase.ROLLED_BACK and rollout.strategy == "rollback":
        return "good"
    if rollout.phase is RolloutPhase.CONVERGED and rollout.unconfirmed:
        return "wait"
    return _ENDS.get(rollout.phase, "busy")


def _head(record: RolloutRecord, title: str) -> str:
    rollout, color = record.rollout, tone(record.rollout)
    first = record.decisions[0].entry if record.decisions else None
    asked = asked_text(first.by, first.reason) if first else ""
    phase = rollout.phase.value.replace("_", " ")
    began = f", began {first.at}" if first and first.at else ""
    return (
        f'<header><h1>{text(title)}<span class="badge {color}">{text(phase)}</span></h1>'
        f'<p class="soft">rollout <code>{text(rollout.id)}</code>{text(began)}'
        f"{text(', ' + asked if asked else '')}</p>"
        f'<p class="verdict {color}"><span>{text(rollout.sentence)}</span></p>'
        f'<dl class="facts">{"".join(_fact(*each) for each in _facts(record))}</dl></header>'
    )


def _facts(record: RolloutRecord) -> list[tuple[str, str]]:
    rollout = record.rollout
    by_number = {release.number: release for release in record.releases}
    brought = by_number.get(rollout.to_release)
    has_ended = rollout.phase.is_terminal
    nodes = f"{rollout.confirmed} of {rollout.roster_size}" if has_ended else rollout.roster_size
    facts = [
        ("Strategy", rollout.strategy),
        ("Lasted" if has_ended else "Lasts", duration_text(record.lasted_s)),
        ("Nodes confirmed" if has_ended else "Nodes", str(nodes)),
        ("Decisions", str(len(record.decisions))),
    ]
    if brought:
        facts.append(("Version vector", brought.vector_text))
    if record.groups:
        facts.append(("Groups", ", ".join(record.groups)))
    if rollout.cause is not Cause.NONE:
        facts.append(("Went back", f"to {rollout.back_to} ({rollout.cause.value})"))
    if rollout.unconfirmed:
        facts.append(("Unconfirmed", listed(rollout.unconfirmed)))
    return facts


def _fact(name: str, value: str) -> str:
    return f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>"


def _decisions(record: RolloutRecord) -> str:
    head = "<tr><th>After</th><th>Phase</th><th>Traffic</th><th>Decision</th></tr>"
    rows, asked = "", ""
    for moment in record.decisions:
        own = asked_text(moment.entry.by, moment.entry.reason)
        rows += _row(moment, own if own != asked else "")
        asked = own or asked
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(moment: Moment, asked: str) -> str:
    entry = moment.entry
    note = f'<br/><span class="note">{text(asked)}</span>' if asked else ""
    return (
        f'<tr><td class="n" title="{text(entry.at)}">+{text(duration_text(moment.at_s))}</td>'
        f'<td class="n">{text(entry.phase.value)}</td>'
        f'<td class="n">{text(traffic_words(entry.seen))}</td>'
        f"<td>{text(entry.sentence)}{note}</td></tr>"
    )


def _releases(releases: tuple[Release, ...]) -> str:
    rows = "".join(
        f'<tr><td class="n">{release.number}</td><td>{text(name.value)}</td>'
        f"<td><code>{text(made.root)}</code></td>"
        f'<td class="n">{text(bytes_text(made.size_bytes) if made.size_bytes else "")}</td>'
        f"<td>{text(made.source)}</td></tr>"
        for release in releases
        for name, made in sorted(release.components.items())
    )
    head = "<tr><th>Release</th><th>Component</th><th>Root</th><th>Size</th><th>Source</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _plan(record: RolloutRecord) -> str:
    lines = "".join(f"<li>{text(each)}</li>" for each in plan_lines(record.plan))
    return f'<ul>{lines}</ul><p class="note">digest <code>{text(record.rollout.plan)}</code></p>'
