"""`vctl rollout start`: a plan, from a file or from flags, becomes a rollout that is followed.

Order: everything that can be refused without hashing is refused first; the bytes are hashed once,
before the first attempt to write; only the reading and the decision are repeated on conflict.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from vctl_cli.artifacts import bring, refuse_misfit
from vctl_cli.deciding import carry_out
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Junit, NoWatch
from vctl_cli.planfile import Variables, read_file, read_text, to_yaml
from vctl_cli.planflags import Flags, with_plan_flags
from vctl_cli.reading import Reading, read_known_service, read_service
from vctl_cli.session import Session, session_of
from vctl_cli.watching import finish
from vctl_plans.document import (
    DEFAULT_WEIGHTS,
    AnyDocument,
    RollbackDocument,
    golden_of,
    groups_of,
    resolve,
    sources,
)
from vctl_plans.errors import PlanError
from vctl_plans.golden import Golden
from vctl_plans.groups import Groups
from vctl_plans.operate import AlreadyDone, Attach, Begin, Request
from vctl_plans.operate import start as decide_start
from vctl_plans.parsing import parse, require_built
from vctl_plans.phase import Component
from vctl_plans.plan import Plan
from vctl_plans.release import Artifact
from vctl_plans.store.port import Store

STDIN = "-"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be carried out, with its bytes known."""

    plan: Plan
    wish: dict[Component, Artifact] | int
    groups: Groups | None = None
    golden: Golden | None = None
    request: Request


@with_plan_flags
def start(
    ctx: typer.Context,
    *,
    flags: Flags,
    no_watch: NoWatch = False,
    junit: Junit = "",
    print_plan: Annotated[
        bool, typer.Option("--print-plan", help="Print the plan file that this means, and stop.")
    ] = False,
) -> ExitCode:
    """Start a rollout and follow it to its end.

    The plan is a file, or the flags that say the same. Components that are given together switch
    together, in one write of the route; those that are not given stay as they are. The
    rollout is carried out by the fleet's conductor: it goes on when this command ends, however it
    ends. The identical plan started again follows the rollout that runs, or is done at once when it
    has converged. What it would come to, without writing anything: vctl rollout plan.
    """
    session = session_of(ctx)
    content = plan_content(flags, session)
    document = checked(content)
    if print_plan:
        session.screen.exact(to_yaml(content))
        return ExitCode.DONE

    async def act(store: Store) -> ExitCode:
        decision = await begin(session, store, document, flags)
        return await finish(session, store, decision, is_watched=not no_watch, junit=junit)

    return session.run(act)


def checked(content: dict[str, Any]) -> AnyDocument:
    """Return the plan of *content*, if vctl can carry it out.

    Raises:
        PlanError: It does not validate, or needs what is not built yet.
    """
    document = parse(content)
    require_built(document)
    for component, source in sources(document).items():
        refuse_misfit(source, component)
    return document


def plan_content(flags: Flags, session: Session) -> dict[str, Any]:
    """Return the plan as a mapping, from the file or from the flags.

    Raises:
        PlanError: Neither was given, or both.
    """
    if not flags.plan:
        Variables(flags.values).refuse_unused("a plan of flags")
        return _from_flags(flags, session)
    names = ("release", "strategy", "steps", "soak", "group", "to")
    both = [f"--{name}" for name in (*flags.parts, *(n for n in names if getattr(flags, n)))]
    if both:
        raise PlanError(
            f"{', '.join(both)} and {flags.plan} both say what to do", hint="give one of them"
        )
    given = Variables(flags.values)
    content = plan_file(flags.plan, session, given)
    given.refuse_unused(flags.plan)
    over = {
        "service": flags.service,
        "reason": flags.reason,
        "allow_downtime": flags.allow_downtime,
    }
    return {**content, **{name: value for name, value in over.items() if value}}


def plan_file(plan: str, session: Session, given: Variables) -> dict[str, Any]:
    """Return the content of a plan file, or of stdin, with its variables filled in.

    Raises:
        PlanError: It cannot be read, or is no plan, or a variable is not given.
    """
    if plan == STDIN:
        return read_text(session.world.stdin.read(), base=Path.cwd(), where="stdin", given=given)
    return read_file(plan, given)


def _from_flags(flags: Flags, session: Session) -> dict[str, Any]:
    meant = "user-group" if flags.group else "weighted" if flags.steps else "full-switch"
    strategy = flags.strategy or meant
    content: dict[str, Any] = {"service": session.service(flags.service), "strategy": strategy}
    if flags.parts and flags.release:
        named = ", ".join(f"--{name}" for name in flags.parts)
        hint = "leave one of them out; vctl release create makes a release beforehand"
        raise PlanError(
            f"{named} and --release both name what to bring in", path="release", hint=hint
        )
    if flags.parts or flags.release:
        content["release"] = flags.parts or flags.release
    elif strategy != "rollback":
        hint = "give --adapter, --prompt, --index or --weights, --release N, or a plan file"
        raise PlanError("what is to be rolled out?", path="release", hint=hint)
    if flags.group:
        content["groups"] = [flags.group]
    if flags.to:
        content["to"] = int(flags.to) if flags.to.isdecimal() else flags.to
    more = {"reason": flags.reason, "allow_downtime": flags.allow_downtime}
    return content | _pace(flags, strategy) | {name: said for name, said in more.items() if said}


def _pace(flags: Flags, strategy: str) -> dict[str, Any]:
    """Return how fast traffic moves: the steps of a weighted plan, else one soak."""
    soak = {"soak": flags.soak} if flags.soak else {}
    if strategy != "weighted" and not flags.steps:
        return soak
    if not soak and not flags.steps:
        return {}
    given = flags.steps.split(",") if flags.steps else DEFAULT_WEIGHTS
    return {"steps": [{"weight": _weight(each), **soak} for each in given]}


def _weight(text: str | int) -> float:
    try:
        weight = float(text)
    except ValueError:
        raise PlanError(
            f"{text!r} is no weight", path="steps", hint="write percentages, as in 10,50,100"
        ) from None
    return int(weight) if weight.is_integer() else weight


async def begin(
    session: Session, store: Store, document: AnyDocument, flags: Flags
) -> Begin | Attach | AlreadyDone:
    """Hash what the plan brings, and write the rollout.

    Raises:
        PlanError: The service does not exist, or nothing is at a source.
        TransitionError: Another rollout runs.
        ArtifactError: The bytes may not be served.
    """
    keys = session.target.keys
    if not flags.new_service:
        await read_known_service(store, keys, document.service, can_make=True)
    wish = await wish_of(session, store, document, flags)

    def decide(reading: Reading) -> Begin | Attach | AlreadyDone:
        return decide_start(
            reading.service,
            wish.plan,
            wish=wish.wish,
            roster=reading.present,
            request=wish.request,
            supersede=flags.supersede,
            groups=wish.groups,
            golden=wish.golden,
        )

    brings_base = Component.WEIGHTS in sources(document)

    async def read() -> Reading:
        return await read_service(
            store,
            keys,
            document.service,
            brings_base=brings_base,
            mode=flags.mode,
            tenant=flags.owner,
        )

    return await carry_out(store, keys, read, decide)


async def wish_of(
    session: Session, store: Store, document: AnyDocument, flags: Flags, *, is_dry: bool = False
) -> Wish:
    """Return what is to be carried out; this is where bytes are hashed."""
    found = await bring(session, store, sources(document), is_dry=is_dry)
    plan = resolve(document, {component: made.root for component, made in found.items()})
    number = plan.to if isinstance(document, RollbackDocument) else document.release
    return Wish(
        plan=plan,
        wish=number if isinstance(number, int) else found,
        groups=groups_of(document),
        golden=golden_of(document),
        request=session.request(document.reason or flags.reason),
    )
