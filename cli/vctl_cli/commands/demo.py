"""`vctl demo`: the whole story on this machine, told and measured, in less than a minute."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.demo.story import Figures, Story
from vctl_cli.dev import DevFleet
from vctl_cli.dev.fleet import end_on_signals
from vctl_cli.dev.layout import Options
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Output
from vctl_cli.render.document import show
from vctl_cli.session import Session, session_of
from vctl_plans.errors import PlanError


def demo(
    ctx: typer.Context,
    *,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=16, help="How many nodes.")] = 4,
    keep: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep state and logs there; it must be empty."),
    ] = None,
) -> ExitCode:
    """Tell and measure the whole story on this machine.

    Rolls out, refuses a flipped bit and rolls back, while clients ask on every node and compare
    each answer with what the release that it names should say. Exit code 1 if any was not right.
    """
    session = session_of(ctx)
    end_on_signals()
    if keep and keep.exists() and any(keep.iterdir()):
        raise PlanError(
            f"{keep} is not empty", path="--dir", hint="name another: it begins from nothing"
        )
    folder = keep or Path(tempfile.mkdtemp(prefix="vctl-demo-"))
    try:
        figures = tell(session, folder, nodes=nodes)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    show(session, figures, kind="demo", table=lambda: text(figures))
    return ExitCode.DONE if figures.is_clean else ExitCode.FAILED


def tell(session: Session, folder: Path, *, nodes: int) -> Figures:
    """Run the fleet and the story in *folder*.

    Raises:
        VctlError: The fleet could not be started.
    """
    env, screen = session.world.env, session.screen
    with DevFleet(folder, Options(nodes=nodes, fleet="demo"), env=env) as fleet:
        is_silent = session.output is not Output.TABLE
        return Story(fleet, screen, env=env, is_silent=is_silent).tell()


def text(figures: Figures) -> str:
    """Return the table of the last step, for 80 columns."""
    counted = figures.count
    rows = [
        ("requests", f"{counted.requests}"),
        *((f"  answered by release {n}", f"{k}") for n, k in counted.by_release.items()),
        ("errors", f"{counted.errors}"),
        ("answers from a wrong release", f"{counted.wrong_release}"),
        ("answers from a stale cache", f"{counted.stale_cache}"),
        ("  prompt tokens that came from caches", f"{counted.cached_tokens}"),
        ("rollout start to converged", f"{figures.rollout_ms:.0f} ms"),
        ("rollback --now to the last node switched", f"{figures.rollback_ms:.0f} ms"),
        ("  to all nodes confirmed", f"{figures.rollback_command_ms:.0f} ms"),
    ]
    lines = [f"\n5. what {figures.nodes} nodes and their clients saw in {figures.seconds:.0f} s"]
    lines += [f"   {name:<42}{value:>9}" for name, value in rows]
    lines += [f"   not right: {example}" for example in counted.examples]
    lines += [f"   unexpected: {surprise}" for surprise in figures.surprises]
    return "\n".join(lines)
