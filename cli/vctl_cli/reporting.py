"""What a command leaves behind for others than the person who looks: a CI's page, a test report.

Nothing here changes how the command ended. What cannot be written for the CI system is told and
let be; a report that was asked for by name and cannot be written is an error.
"""

from collections.abc import Sequence
from pathlib import Path

from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Scene
from vctl_cli.render import ci
from vctl_cli.render.stages import Stage, stages
from vctl_cli.session import Session

_LEVELS: dict[ExitCode, ci.Level] = {
    ExitCode.DONE: "notice",
    ExitCode.PAUSED: "warning",
    ExitCode.UNCONFIRMED: "warning",
    ExitCode.TIMED_OUT: "warning",
    ExitCode.INTERRUPTED: "warning",
}
MOST_ANNOTATIONS = 10
"""GitHub shows so many of a step, of one level."""


def wants_report(session: Session, junit: str) -> bool:
    """Whether anybody but the person who looks is to be told how a rollout was left."""
    return bool(junit) or ci.is_github(session.world.env)


def report_rollout(session: Session, scene: Scene, code: ExitCode, *, junit: str) -> None:
    """Tell the CI system how a rollout was left, and write the test report that was asked for.

    Raises:
        PlanError: The report cannot be written.
    """
    rollout, is_github = scene.rollout, ci.is_github(session.world.env)
    if not wants_report(session, junit):
        return
    found = stages(scene, code)
    if is_github:
        from vctl_cli.render.cisummary import rollout_summary  # noqa: PLC0415  only there

        text = f"{rollout.service}: {rollout.sentence}"
        _annotate(session, code, [text])
        _append(session, rollout_summary(scene, found, code, figures=scene.figures))
    if junit:
        said = "\n".join(f"{e.at}  {e.phase}: {e.sentence}" for e in scene.entries)
        _write(
            junit, f"rollout of {rollout.service}", found, output=f"rollout {rollout.id}\n{said}"
        )


def report_checks(
    session: Session, title: str, found: Sequence[Stage], code: ExitCode, *, junit: str
) -> None:
    """Tell the CI system what was checked, and write the test report that was asked for.

    Raises:
        PlanError: The report cannot be written.
    """
    if ci.is_github(session.world.env):
        from vctl_cli.render.cisummary import checks_summary  # noqa: PLC0415  only there

        bad = [f"{stage.name}: {stage.text}" for stage in found if stage.outcome == "failed"]
        _annotate(session, code, bad or [title])
        _append(session, checks_summary(title, found, code))
    if junit:
        _write(junit, title, found)


def _annotate(session: Session, code: ExitCode, texts: Sequence[str]) -> None:
    level = _LEVELS.get(code, "error")
    for text in texts[:MOST_ANNOTATIONS]:
        session.screen.complain(ci.annotation(level, text))


def _append(session: Session, page: str) -> None:
    """Add to the step's summary; the job is not failed by a page that cannot be written."""
    path = session.world.env.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(page)
    except OSError as problem:
        session.screen.say(f"no step summary: {path}: {problem.strerror}")


def _write(path: str, suite: str, found: Sequence[Stage], *, output: str = "") -> None:
    from vctl_cli.render.junit import junit_text, write_junit  # noqa: PLC0415  few want it

    write_junit(Path(path), junit_text(suite, found, output=output))
