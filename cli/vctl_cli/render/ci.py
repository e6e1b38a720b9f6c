"""What CI systems make of a log: collapsed sections, annotations, a summary page.

GitHub Actions: https://docs.github.com/actions/reference/workflow-commands-for-github-actions, and
its toolkit's `command.ts` for what must be escaped. GitLab: https://docs.gitlab.com/ci/jobs/job_logs.

The rule to keep: what a release or a node says never becomes a command to the CI system. How a
rollout ended stands outside all sections, so that nobody has to open one to learn it.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Protocol

from vctl_cli.render.changes import Change, change_text
from vctl_cli.render.screen import Screen
from vctl_plans.phase import RolloutPhase

Level = Literal["error", "warning", "notice"]

_TITLE = "vctl"
_OLD_COMMAND = "##["  # the runner still obeys these, wherever in a line they stand


def is_github(env: Mapping[str, str]) -> bool:
    """Whether this runs in a job of GitHub Actions."""
    return env.get("GITHUB_ACTIONS") == "true"


def is_gitlab(env: Mapping[str, str]) -> bool:
    """Whether this runs in a job of GitLab CI."""
    return env.get("GITLAB_CI") == "true"


def annotation(level: Level, text: str, *, title: str = _TITLE) -> str:
    """Return the workflow command that shows *text* on the run's page."""
    return f"::{level} title={_property(title)}::{_message(text)}"


def _message(text: str) -> str:
    """Escape a command's message: it ends at the line's end."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return _harmless(escaped)


def _property(text: str) -> str:
    """Escape the value of a command's property: colons and commas end it too."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _harmless(text: str) -> str:
    return text.replace(_OLD_COMMAND, "## [")


class Sections(Protocol):
    """How a CI system folds lines."""

    def begin(self, name: str, title: str, now: datetime) -> str:
        """Return the line that begins a section."""
        ...

    def end(self, name: str, now: datetime) -> str:
        """Return the line that ends it."""
        ...

    def line(self, text: str) -> str:
        """Return a line as it may stand in the log."""
        ...


class GitHub:
    """Groups."""

    def begin(self, name: str, title: str, now: datetime) -> str:  # noqa: ARG002
        """Return the line that begins a group, by its title."""
        return f"::group::{_message(title)}"

    def end(self, name: str, now: datetime) -> str:  # noqa: ARG002
        """Return the line that ends the group."""
        return "::endgroup::"

    def line(self, text: str) -> str:
        """Return a line that is no command; the runner looks for one behind blanks too."""
        is_command = text.lstrip().startswith("::")
        return _harmless(text.replace("::", ": :", 1) if is_command else text)


class GitLab:
    """Collapsible sections; a name is made of letters, digits and underscores, and used once."""

    def begin(self, name: str, title: str, now: datetime) -> str:
        """Return the line that begins a section."""
        head = f"section_start:{int(now.timestamp())}:{_section(name)}[collapsed=true]"
        return f"\x1b[0K{head}\r\x1b[0K{title}"

    def end(self, name: str, now: datetime) -> str:
        """Return the line that ends it."""
        return f"\x1b[0Ksection_end:{int(now.timestamp())}:{_section(name)}\r\x1b[0K"

    def line(self, text: str) -> str:
        """Return a line that begins no section, whatever it says."""
        return text.replace("\x1b", "\\x1b").replace("\r", "\\r")


def _section(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def folded(env: Mapping[str, str], screen: Screen) -> "Folded | None":
    """Return what writes changes in sections, where the CI system that runs this has some."""
    if is_github(env):
        return Folded(GitHub(), screen)
    return Folded(GitLab(), screen) if is_gitlab(env) else None


class Folded:
    """A section for each stage of a rollout: the gate, each step, the end; its outcome in none."""

    def __init__(self, sections: Sections, screen: Screen) -> None:
        self._sections = sections
        self._screen = screen
        self._open = ""
        self._phase = ""
        self._count = self._steps = 0

    def write(self, change: Change, now: datetime) -> None:
        """Write one change, in the section where it belongs."""
        if change.kind == "decision" and change.phase != self._phase:
            self._turn(change, now)
            self._phase = change.phase
        self._screen.data(self._sections.line(change_text(change, now)))

    def _turn(self, change: Change, now: datetime) -> None:
        """End a section and begin the next, unless this phase is of the same stage."""
        phase = RolloutPhase(change.phase)
        if phase is RolloutPhase.SOAKING and self._open:
            return
        self.close(now)
        if phase.is_terminal or phase is RolloutPhase.PAUSED:
            return
        title = change.phase.replace("_", " ")
        if phase is RolloutPhase.SHIFTING:
            self._steps += 1
            title = f"step {self._steps}"
        self._count += 1
        self._open = f"vctl_{change.rollout}_{self._count}"
        self._screen.exact(self._sections.begin(self._open, f"{change.service}: {title}", now))

    def close(self, now: datetime) -> None:
        """End the section that is open: also when nobody follows the rollout any more."""
        if self._open:
            self._screen.exact(self._sections.end(self._open, now))
        self._open = ""
