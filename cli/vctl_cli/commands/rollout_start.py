"""`vctl rollout start`: a plan, from a file or from flags, becomes a rollout that is followed.

Order: everything that can be refused without hashing is refused first; the bytes are hashed once,
before the first attempt to write; only the reading and the decision are repeated on conflict.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from vctl_cli.artifacts import bring, refuse_misfit
from vctl_cli.componentflags import (
    HashOnNodes,
    Index,
    IndexRoot,
    Prompt,
    PromptRoot,
    Push,
    Weights,
    WeightsRoot,
    release_content,
)
from vctl_cli.deciding import carry_out
from vctl_cli.exitcodes import ExitCode
from vctl_cli.groupflags import GroupName, Headers, Percent, Tenant, Users, group_content
from vctl_cli.options import (
    AllowDowntime,
    DirectService,
    Junit,
    NewService,
    NoWatch,
    Reason,
    Root,
    Service,
)
from vctl_cli.planfile import read_file, read_text, to_yaml
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
from vctl_plans.route import Mode
from vctl_plans.store.port import Store

STDIN = "-"


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line beside the shared options."""

    plan: str = ""
    service: str = ""
    parts: dict[str, dict[str, Any]] = {}  # component -> its source, as in a plan file
    release: int | None = None
    strategy: str = ""
    soak: str = ""
    steps: str = ""
    to: str = ""
    group: dict[str, Any] = {}
    reason: str = ""
    allow_downtime: bool = False
    supersede: bool = False
    new_service: bool = False
    mode: Mode = Mode.GATEWAY  # of a new service


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be carried out, with its bytes known."""

    plan: Plan
    wish: dict[Component, Artifact] | int
    groups: Groups | None = None
    golden: Golden | None = None
    request: Request


Strategy = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="weighted, user-group, full-switch or rollback."
        " [default: full-switch; with --steps weighted; with a group user-group]",
    ),
]
Steps = Annotated[
    str,
    typer.Option(
        metavar="PERCENT,...",
        help="Of a weighted rollout: the share of traffic on the release, step by step."
        " [default: 10,25,50,100]",
    ),
]

Adapter = Annotated[
    str, typer.Option(metavar="SOURCE", help="Adapter to bring in: a directory, or its URI.")
]
Number = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="A release that exists already.")
]
Soak = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to wait at each step, as in 5m. [default: 5m; of a full-switch none]",
    ),
]
Supersede = Annotated[
    bool, typer.Option("--supersede", help="Take the place of a rollout that still prepares.")
]


def start(
    ctx: typer.Context,
    plan: Annotated[
        str, typer.Argument(metavar="[PLAN.yaml | -]", help="The plan; - reads stdin.")
    ] = "",
    *,
    service: Service = "",
    adapter: Adapter = "",
    root: Root = "",
    prompt: Prompt = "",
    prompt_root: PromptRoot = "",
    index: Index = "",
    index_root: IndexRoot = "",
    weights: Weights = "",
    weights_root: WeightsRoot = "",
    hash_on_nodes: HashOnNodes = None,
    push: Push = "",
    release: Number = None,
    strategy: Strategy = "",
    steps: Steps = "",
    soak: Soak = "",
    group: GroupName = "",
    user: Users = None,
    tenant: Tenant = "",
    header: Headers = None,
    percent: Percent = None,
    to: Annotated[str, typer.Option(metavar="N", help="Of a rollback: where to.")] = "",
    reason: Reason = "",
    allow_downtime: AllowDowntime = False,
    supersede: Supersede = False,
    new_service: NewService = False,
    direct: DirectService = False,
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
    has converged.
    """
    session = session_of(ctx)
    flags = Flags(
        plan=plan, service=service, release=release, soak=soak, to=to, steps=steps,
        strategy=strategy, reason=reason, supersede=supersede, new_service=new_service,
        allow_downtime=allow_downtime,
        parts=release_content(
            adapter=(adapter, root), prompt=(prompt, prompt_root), index=(index, index_root),
            weights=(weights, weights_root), hash_on_nodes=hash_on_nodes, push=push,
        ),
        group=group_content(name=group, users=user, tenant=tenant, headers=header, percent=percent),
        mode=_mode(is_direct=direct, is_new=new_service),
    )  # fmt: skip
    content = plan_content(flags, session)
    if print_plan:
        session.screen.data(to_yaml(content))
        return ExitCode.DONE
    document = checked(content)

    async def act(store: Store) -> ExitCode:
        decision = await begin(session, store, document, flags)
        return await finish(session, store, decision, is_watched=not no_watch, junit=junit)

    return session.run(act)


def _mode(*, is_direct: bool, is_new: bool) -> Mode:
    if is_direct and not is_new:
        hint = "it goes with --new-service"
        raise PlanError("is set when a service is made", path="--direct", hint=hint)
    return Mode.DIRECT if is_direct else Mode.GATEWAY


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
        return _from_flags(flags, session)
    names = ("release", "strategy", "steps", "soak", "group", "to")
    both = [f"--{name}" for name in (*flags.parts, *(n for n in names if getattr(flags, n)))]
    if both:
        raise PlanError(
            f"{', '.join(both)} and {flags.plan} both say what to do", hint="give one of them"
        )
    content = _from_file(flags.plan, session)
    over = {
        "service": flags.service,
        "reason": flags.reason,
        "allow_downtime": flags.allow_downtime,
    }
    return {**content, **{name: value for name, value in over.items() if value}}


def _from_file(plan: str, session: Session) -> dict[str, Any]:
    if plan == STDIN:
        return read_text(session.world.stdin.read(), base=Path.cwd(), where="stdin")
    return read_file(plan)


def _from_flags(flags: Flags, session: Session) -> dict[str, Any]:
    meant = "user-group" if flags.group else "weighted" if flags.steps else "full-switch"
    strategy = flags.strategy or meant
    content: dict[str, Any] = {"service": session.service(flags.service), "strategy": strategy}
    if flags.parts and flags.release:
        named = ", ".join(f"--{name}" for name in flags.parts)
        raise PlanError(f"{named} and --release both name what to bring in", path="release")
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
            store, keys, document.service, brings_base=brings_base, mode=flags.mode
        )

    return await carry_out(store, keys, read, decide)


async def wish_of(session: Session, store: Store, document: AnyDocument, flags: Flags) -> Wish:
    """Return what is to be carried out; this is where bytes are hashed."""
    found = await bring(session, store, sources(document))
    plan = resolve(document, {component: made.root for component, made in found.items()})
    number = plan.to if isinstance(document, RollbackDocument) else document.release
    return Wish(
        plan=plan,
        wish=number if isinstance(number, int) else found,
        groups=groups_of(document),
        golden=golden_of(document),
        request=session.request(document.reason or flags.reason),
    )
