"""The state diagrams of the docs, made of the tables that decide: run as a program, writes them.

python -m vctl_plans.diagram            writes docs/phases.md
python -m vctl_plans.diagram --check    exits 1 when it is stale
"""

import sys
from pathlib import Path

from vctl_plans.events import (
    AbortAsked,
    Observed,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    RollbackAsked,
    SupersedeAsked,
    TakenOver,
)
from vctl_plans.machine import TABLE
from vctl_plans.node_machine import MOVES
from vctl_plans.phase import NodePhase, RolloutPhase

TARGET = Path("docs/phases.md")

_WORDS: dict[type, str] = {
    Observed: "observed",
    RollbackAsked: "rollback --now",
    AbortAsked: "abort",
    PauseAsked: "pause",
    PromoteAsked: "promote",
    ResumeAsked: "resume",
    SupersedeAsked: "supersede",
    TakenOver: "too many take-overs",
}

_PAGE = """\
<!-- Written by `python -m vctl_plans.diagram`; do not edit. -->

# Phases

## Of a rollout

Decided by `vctl_plans.machine`. *observed* is what the conductor sees the nodes report, or a
deadline; the others are what operators ask. An event that a phase does not list is refused, and
changes nothing.

```mermaid
{rollout}
```

## Of a release on a node

Decided by `vctl_plans.node_machine`, from what engine and disk really hold.

```mermaid
{node}
```
"""


def page() -> str:
    """Return the page of both diagrams."""
    return _PAGE.format(rollout=rollout_diagram(), node=node_diagram())


def rollout_diagram() -> str:
    """Return `machine.TABLE` in Mermaid's words; one arrow between two phases, all its events."""
    events: dict[tuple[RolloutPhase, RolloutPhase], list[str]] = {}
    for phase, rules in TABLE.items():
        for kind, rule in rules.items():
            for after in sorted(rule.to):
                events.setdefault((phase, after), []).append(_WORDS[kind])
    arrows = [f"{a} --> {b}: {', '.join(words)}" for (a, b), words in events.items()]
    ends = [f"{phase} --> [*]" for phase in RolloutPhase if phase.is_terminal]
    return _diagram([f"[*] --> {RolloutPhase.PREPARING}", *arrows, *ends])


def node_diagram() -> str:
    """Return `node_machine.MOVES` in Mermaid's words."""
    arrows = [
        f"{phase} --> {after}"
        for phase in NodePhase
        for after in NodePhase
        if after in MOVES[phase]
    ]
    return _diagram([f"[*] --> {NodePhase.ABSENT}", *arrows])


def _diagram(lines: list[str]) -> str:
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in lines)])


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether it is as it should be."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m vctl_plans.diagram [--check]\n")
        return 2
    if not arguments:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(page())
        return 0
    if TARGET.is_file() and TARGET.read_text() == page():
        return 0
    sys.stderr.write(f"{TARGET} is stale: run make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
