"""Follow a rollout to its end, in the form that fits where stdout goes, and return the exit code.

The end is what was seen in the store, never what was expected. A watch ends at each terminal phase,
at `paused`, at `--timeout` and at Ctrl-C; the rollout itself goes on without it.
"""

import asyncio
from contextlib import aclosing

from vctl_cli.ending import exit_code, has_ended
from vctl_cli.exitcodes import ExitCode
from vctl_cli.follow import Follow, Scene, scenes
from vctl_cli.render.document import show
from vctl_cli.render.nextsteps import next_steps, steps_text
from vctl_cli.render.views import is_drawn, view_of
from vctl_cli.reporting import report_rollout
from vctl_cli.session import Session
from vctl_cli.ticking import ticking
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue
from vctl_plans.phase import RolloutPhase
from vctl_plans.plan import Plan
from vctl_plans.rollout import Rollout
from vctl_plans.store.port import Store
from vctl_plans.units import duration_text


async def watch(
    session: Session,
    store: Store,
    follow: Follow,
    *,
    asked_back: bool | None = None,
    junit: str = "",
) -> ExitCode:
    """Show a rollout until it ends or waits for a person.

    Args:
        session: Says how to show it, and for how long at most.
        store: Where it is.
        follow: Which one.
        asked_back: Whether going back is what was wanted; None: as the rollout itself began.
        junit: Where a test report is to be written; empty: nowhere.

    Raises:
        StoreError: The store refused to be watched.
        PlanError: The report cannot be written.
    """
    code, last = await _followed(session, store, follow, asked_back)
    if last is not None:
        report_rollout(session, last, code, junit=junit)
    return code


async def _followed(
    session: Session,
    store: Store,
    follow: Follow,
    asked_back: bool | None,  # noqa: FBT001  three values
) -> tuple[ExitCode, Scene | None]:
    """Return how it was left, and what was seen last."""
    last: Scene | None = None
    try:
        async with asyncio.timeout(session.target.timeout_s):
            with view_of(session, since=follow.since) as view:
                stream = scenes(store, session.target.keys, follow)
                async with aclosing(stream), ticking(view.tick):
                    async for last in stream:
                        view.show(last)
                        if has_ended(last.rollout):
                            break
    except TimeoutError:
        return _out_of_time(session, follow, last), last
    except asyncio.CancelledError:
        return _interrupted(session, follow, last), last
    assert last is not None  # noqa: S101  the stream of scenes has no end of its own
    return _ended(session, last, asked_back), last


def _ended(session: Session, scene: Scene, asked_back: bool | None) -> ExitCode:  # noqa: FBT001
    rollout = scene.rollout
    goes_back = rollout.strategy == "rollback" if asked_back is None else asked_back
    code = exit_code(rollout, asked_back=goes_back)
    if code is ExitCode.UNCONFIRMED:
        session.screen.complain(f"unconfirmed: {', '.join(rollout.unconfirmed)}")
        session.screen.say("  they follow once they can; the same command again asks them")
    tell_next_steps(session, rollout, scene.plan)
    return code


def tell_next_steps(
    session: Session, rollout: Rollout, plan: Plan | None = None, *, told: str = ""
) -> None:
    """Say what leads on from where a rollout stands, but for the command *told*: it has run."""
    steps = [step for step in next_steps(rollout, plan) if not (told and step[0].startswith(told))]
    if steps:
        is_paused = rollout.phase is RolloutPhase.PAUSED
        session.screen.say("it waits for a person:" if is_paused else "what next:")
        session.screen.say(steps_text(steps))


def _out_of_time(session: Session, follow: Follow, last: Scene | None) -> ExitCode:
    waited = duration_text(session.target.timeout_s or 0.0)
    stands = f"is {last.rollout.phase}" if last else "was not seen yet"
    session.screen.complain(
        f"vctl: rollout {follow.rollout} {stands} after {waited}; it goes on\n"
        f"  follow it: vctl rollout watch -s {follow.service}"
    )
    return ExitCode.TIMED_OUT


def _interrupted(session: Session, follow: Follow, last: Scene | None) -> ExitCode:
    stands = f" ({last.rollout.phase})" if last else ""
    session.screen.complain(
        f"vctl: interrupted; rollout {follow.rollout}{stands} goes on\n"
        f"  follow it: vctl rollout watch -s {follow.service}"
    )
    return ExitCode.INTERRUPTED


def _news(decision: Begin | Continue | Attach | AlreadyDone) -> int:
    """Return the first decision that a command has to do with."""
    is_own = isinstance(decision, Begin | Continue)
    return decision.rollout.seq if is_own else decision.rollout.seq + 1


async def finish(
    session: Session,
    store: Store,
    decision: Begin | Continue | Attach | AlreadyDone,
    *,
    is_watched: bool,
    asked_back: bool | None = None,
    junit: str = "",
) -> ExitCode:
    """Tell what a command has written, and follow it if that is wanted.

    Args:
        session: Says how to show it, and for how long at most.
        store: Where it is.
        decision: What was written, or that it was so already.
        is_watched: Whether to follow it.
        asked_back: See `watch`.
        junit: See `watch`.
    """
    rollout, say = decision.rollout, session.screen.say
    match decision:
        case AlreadyDone() | Attach() if rollout.phase.is_terminal:
            say(f"nothing to do: rollout {rollout.id} already {rollout.sentence}")
            if rollout.phase is RolloutPhase.ROLLED_BACK:
                say(f"  further back: vctl rollback --now -s {rollout.service} --to N")
        case Attach():
            say(f"rollout {rollout.id} already does this ({rollout.phase})")
        case Begin() | Continue() if not (is_watched and is_drawn(session)):
            say(f"rollout {rollout.id} of {rollout.service}: {rollout.sentence}")
    for note in decision.notes if isinstance(decision, Begin) else ():
        say(f"  to know: {note}")
    if is_watched:
        follow = Follow(rollout.service, rollout.id, _news(decision))
        return await watch(session, store, follow, asked_back=asked_back, junit=junit)
    show(session, rollout, kind="rollout", table=rollout.id)
    return ExitCode.DONE
