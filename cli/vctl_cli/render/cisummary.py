"""The page that a CI job leaves behind: GitHub's step summary, in its Markdown.

What a release or a node says is text there, and never markup.
"""

import html
from collections.abc import Iterable, Sequence
from datetime import datetime

from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Scene
from vctl_cli.render.nextsteps import next_steps
from vctl_cli.render.stages import Stage
from vctl_plans.rollout import Entry
from vctl_plans.verdict import Figure

SHOWN_DECISIONS = 100
_MARKS = {"passed": "✅", "failed": "❌", "error": "❌", "skipped": "⏭️"}
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]()#+!|~"})


def rollout_summary(
    scene: Scene, stages: Sequence[Stage], code: ExitCode, *, figures: Sequence[Figure] = ()
) -> str:
    """Return the page of a rollout that was followed until *code*."""
    rollout = scene.rollout
    releases = f"release {rollout.from_release or 'none'} → {rollout.to_release}"
    title = f"{rollout.service}: {releases} is {rollout.phase.replace('_', ' ')}"
    parts = [f"### vctl: {text(title)}", text(rollout.sentence)]
    parts.append(table(("", "Stage", "Time", ""), (_stage_row(stage) for stage in stages)))
    if figures:
        head = ("Guardrail", "Verdict", "Value", "Limit", "Counts")
        rows = ((f.judge, f.outcome, f.value, f.limit, f.counts) for f in figures)
        parts.append(table(head, (tuple(map(text, row)) for row in rows)))
    steps = next_steps(rollout, scene.plan)
    if steps:
        lines = "\n".join(f"# {what}\n{command}" for command, what in steps)
        parts.append(f"What next:\n\n```sh\n{lines}\n```")
    parts.append(_decisions(scene.entries))
    parts.append(f"Rollout {text(rollout.id)}, exit code {int(code)}.")
    return "\n\n".join(parts) + "\n\n"


def _stage_row(stage: Stage) -> tuple[str, ...]:
    took = f"{stage.seconds:.0f} s" if stage.seconds else ""
    return _MARKS[stage.outcome], text(stage.name), took, text(stage.text)


def _decisions(entries: Sequence[Entry]) -> str:
    rows = (
        (_clock(entry.at), text(entry.phase.value), text(entry.sentence))
        for entry in entries[-SHOWN_DECISIONS:]
    )
    listed = table(("UTC", "Phase", "Decision"), rows)
    return f"<details><summary>{len(entries)} decisions</summary>\n\n{listed}\n\n</details>"


def _clock(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at):%H:%M:%S}"
    except ValueError:
        return ""


def checks_summary(title: str, stages: Sequence[Stage], code: ExitCode) -> str:
    """Return the page of things that were checked one by one."""
    rows = ((_MARKS[s.outcome], text(s.name), text(s.text)) for s in stages)
    parts = [f"### vctl: {text(title)}", table(("", "Checked", ""), rows)]
    return "\n\n".join([*parts, f"Exit code {int(code)}."]) + "\n\n"


def text(said: str) -> str:
    """Return what was said as Markdown that shows just that, on one line."""
    return html.escape(" ".join(said.split()), quote=False).translate(_SPECIAL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
