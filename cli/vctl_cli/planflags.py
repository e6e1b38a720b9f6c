"""The flags that say what a plan file says: the same for `rollout start` and `rollout plan`.

`with_plan_flags` gives a command all of them, as one struct. A flag that both take is declared here
and nowhere else, so what `plan` shows is what `start` does.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from vctl_cli import variables
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
from vctl_cli.exitcodes import ExitCode
from vctl_cli.groupflags import (
    GroupName,
    Headers,
    Percent,
    Tenant,
    Users,
    group_content,
    owner_of,
)
from vctl_cli.options import AllowDowntime, DirectService, NewService, Reason, Root, Service
from vctl_plans.errors import PlanError
from vctl_plans.route import Mode


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line beside the shared options."""

    plan: str = ""
    values: dict[str, str] = {}  # of the plan file's variables
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
    owner: str = ""  # tenant of a new service


Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="What ${NAME} stands for in the plan file; may be repeated.",
    ),
]
PlanFile = Annotated[
    str, typer.Argument(metavar="[PLAN.yaml | -]", help="The plan; - reads stdin.")
]
Adapter = Annotated[
    str, typer.Option(metavar="SOURCE", help="Adapter to bring in: a directory, or its URI.")
]
Number = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="A release that exists already.")
]
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
Soak = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to wait at each step, as in 5m. [default: 5m; of a full-switch none]",
    ),
]
Target = Annotated[str, typer.Option(metavar="N", help="Of a rollback: where to.")]
Supersede = Annotated[
    bool, typer.Option("--supersede", help="Take the place of a rollout that still prepares.")
]


def plan_flags(
    plan: PlanFile = "",
    *,
    set_: Values = None,
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
    to: Target = "",
    reason: Reason = "",
    allow_downtime: AllowDowntime = False,
    supersede: Supersede = False,
    new_service: NewService = False,
    direct: DirectService = False,
) -> Flags:
    """Return what the flags say.

    Raises:
        PlanError: Two of them do not go together, or one cannot be read.
    """
    return Flags(
        plan=plan, values=variables.given(set_ or ()), service=service, release=release, soak=soak,
        to=to, steps=steps, strategy=strategy, reason=reason, supersede=supersede,
        new_service=new_service, allow_downtime=allow_downtime,
        parts=release_content(
            adapter=(adapter, root), prompt=(prompt, prompt_root), index=(index, index_root),
            weights=(weights, weights_root), hash_on_nodes=hash_on_nodes, push=push,
        ),
        group=group_content(
            name=group, users=user, tenant="" if new_service else tenant, headers=header,
            percent=percent,
        ),
        mode=_mode(is_direct=direct, is_new=new_service),
        owner=owner_of(tenant) if new_service else "",
    )  # fmt: skip


def _mode(*, is_direct: bool, is_new: bool) -> Mode:
    if is_direct and not is_new:
        hint = "it goes with --new-service"
        raise PlanError("is set when a service is made", path="--direct", hint=hint)
    return Mode.DIRECT if is_direct else Mode.GATEWAY


def with_plan_flags(verb: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Return *verb* as Typer sees it: it takes all flags of a plan, and gets them as `flags`.

    Typer reads a function's signature; the one that it reads is put together here, the plan's flags
    between the context and what is the verb's own.
    """
    shared = inspect.signature(plan_flags).parameters
    own = dict(inspect.signature(verb).parameters)
    context = own.pop("ctx")
    del own["flags"]

    @functools.wraps(verb)
    def run(ctx: typer.Context, **given: Any) -> ExitCode:
        flags = plan_flags(**{name: given.pop(name) for name in shared})
        return verb(ctx, flags=flags, **given)

    parameters = [context, *shared.values(), *own.values()]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=ExitCode
    )
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # else Typer would follow it to the names that are not taken
    return run
