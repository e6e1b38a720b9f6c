"""Operators: each presses a command, which reads, decides and writes as the real one does."""

from collections.abc import Awaitable, Callable
from random import Random

from tests.builders import SERVICE
from tests.sim.client import Client
from tests.sim.plans import draw_groups, draw_plan, draw_wish
from tests.sim.world import KEYS, World
from vctl_cli.commands.rollback import back_by_plan, back_now
from vctl_cli.commands.rollout_retry import tried_again
from vctl_cli.commands.route_override_rm import removed
from vctl_cli.commands.route_override_set import HoldView, held
from vctl_cli.deciding import carry_out
from vctl_cli.reading import Reading, read_service
from vctl_cli.steering import steered
from vctl_plans import operate
from vctl_plans.errors import VctlError
from vctl_plans.events import (
    AbortAsked,
    PauseAsked,
    PromoteAsked,
    ResumeAsked,
    RollbackAsked,
    SupersedeAsked,
)
from vctl_plans.operate import AlreadyDone, Attach, Begin, Continue, Request
from vctl_plans.phase import RolloutPhase
from vctl_plans.store.port import Store

Written = Begin | Continue | Attach | AlreadyDone | HoldView
Command = Callable[[Store, Request, Random], Awaitable[Written]]


async def start(
    store: Store, request: Request, random: Random, *, fresh: int = 0, is_narrow: bool = False
) -> Written:
    """`rollout start`: an adapter, or a release that exists already.

    Args:
        store: Where to.
        request: Who asks.
        random: What is asked.
        fresh: An adapter that nobody has, for a plan that must come to its end; 0: any.
        is_narrow: Whether engines have few places for adapters.
    """
    plan, groups = draw_plan(random, is_sound=bool(fresh), is_narrow=is_narrow)
    wished = draw_wish(random, fresh=fresh)
    is_by_number, which = random.random() < 0.2, random.random()
    supersede = random.random() < 0.5

    def decide(reading: Reading) -> Begin | Attach | AlreadyDone:
        wish: object = wished
        known = sorted(reading.service.releases)
        if is_by_number and not fresh and known:
            wish = known[int(which * len(known))]
        return operate.start(
            reading.service,
            plan,
            wish=wish,  # type: ignore[arg-type]
            roster=reading.present,
            request=request,
            supersede=supersede,
            groups=groups,
        )

    return await carry_out(store, KEYS, lambda: read_service(store, KEYS, SERVICE), decide)


async def override_rm(store: Store, request: Request, random: Random) -> Written:
    """`route override rm`, of any override that there is."""
    reading = await read_service(store, KEYS, SERVICE)
    overrides = reading.service.current_route.overrides
    group = random.choice(overrides).group if overrides else "none"
    return await removed(store, KEYS, SERVICE, group, request=request)


async def override_set(store: Store, request: Request, random: Random) -> Written:
    """`route override set`: mostly to what is loaded, now and then to what may not be."""
    groups, is_any, which = draw_groups(random), random.random() < 0.2, random.random()
    service = (await read_service(store, KEYS, SERVICE)).service
    route = service.current_route
    known = sorted(service.releases if is_any else route.serving | set(route.instant)) or [1]
    number = known[int(which * len(known))]
    return await held(store, KEYS, SERVICE, groups, number=number, request=request)


async def back(store: Store, request: Request, random: Random) -> Written:
    """`rollback --now`."""
    allowed = random.random() < 0.7
    return await back_now(store, KEYS, SERVICE, to=0, request=request, allow_downtime=allowed)


async def back_to(store: Store, request: Request, random: Random) -> Written:
    """`rollback --now --to N`."""
    to, allowed = random.randint(1, 5), random.random() < 0.7
    return await back_now(store, KEYS, SERVICE, to=to, request=request, allow_downtime=allowed)


async def back_to_stable(store: Store, request: Request, _random: Random) -> Written:
    """`rollback --now --to` what serves."""
    reading = await read_service(store, KEYS, SERVICE)
    stable = reading.service.current_route.stable
    return await back_now(store, KEYS, SERVICE, to=stable, request=request)


async def plan_back(store: Store, request: Request, random: Random) -> Written:
    """`rollback`, by a plan."""
    to, allowed = random.choice([0, 0, 1, 2]), random.random() < 0.7
    return await back_by_plan(store, KEYS, SERVICE, to=to, request=request, allow_downtime=allowed)


async def pause(store: Store, request: Request, _random: Random) -> Written:
    """`rollout pause`."""
    return await steered(store, KEYS, SERVICE, PauseAsked(reason=request.id))


async def resume(store: Store, request: Request, _random: Random) -> Written:
    """`rollout resume`."""
    return await steered(store, KEYS, SERVICE, ResumeAsked(reason=request.id))


async def abort(store: Store, request: Request, _random: Random) -> Written:
    """`rollout abort`."""
    return await steered(store, KEYS, SERVICE, AbortAsked(reason=request.id))


async def promote(store: Store, request: Request, _random: Random) -> Written:
    """`rollout promote`."""
    return await steered(store, KEYS, SERVICE, PromoteAsked(reason=request.id))


async def promote_full(store: Store, request: Request, _random: Random) -> Written:
    """`rollout promote --full`."""
    return await steered(store, KEYS, SERVICE, PromoteAsked(reason=request.id, is_full=True))


async def retry(store: Store, request: Request, _random: Random) -> Written:
    """`rollout retry`."""
    return await tried_again(store, KEYS, SERVICE, request)


COMMANDS: dict[str, Command] = {
    "start": start,
    "rollback --now": back,
    "rollback --now --to N": back_to,
    "rollback --now --to stable": back_to_stable,
    "rollback": plan_back,
    "pause": pause,
    "resume": resume,
    "abort": abort,
    "promote": promote,
    "promote --full": promote_full,
    "retry": retry,
    "override rm": override_rm,
    "override set": override_set,
}


_EVENTS: dict[str, type] = {
    "rollback --now": RollbackAsked,
    "rollback --now --to N": RollbackAsked,
    "rollback --now --to stable": RollbackAsked,
    "pause": PauseAsked,
    "resume": ResumeAsked,
    "abort": AbortAsked,
    "promote": PromoteAsked,
    "promote --full": PromoteAsked,
}
"""What a command is to a rollout that runs."""


ROOMY = 5
"""Places in an engine with which no rollout ever lacks one."""


class Operators:
    """Press commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pressed = 0
        self.refusal = ""  # of the last command
        self.open = 0  # commands that have not ended
        self.outcomes: dict[str, int] = {}
        self.written: list[str] = []  # requests that wrote something

    def press(self, name: str, *, fresh: int = 0) -> None:
        """Begin a command; it ends by itself, with or without having written."""
        self._pressed += 1
        self.refusal = ""
        request = Request(id=f"q{self._pressed}", reason=f"q{self._pressed}")
        client = self._world.client(request.id)
        random = Random(f"{self._world.seed}/{request.id}/{name}")  # noqa: S311
        command: Command = COMMANDS[name]
        if fresh:
            is_narrow = self._world.places < ROOMY
            work = start(client, request, random, fresh=fresh, is_narrow=is_narrow)
        else:
            work = command(client, request, random)  # type: ignore[assignment]
        self.open += 1
        client.process.spawn(self._run(name, request, client, work))

    async def _run(
        self, name: str, request: Request, client: Client, work: Awaitable[Written]
    ) -> None:
        try:
            decision = await work
        except VctlError as refusal:
            told, end = f"refused: {refusal.message}", "refused"
            self.refusal = refusal.message
        else:
            told, end = f"-> {_said(decision)}", "done"
            if isinstance(decision, HoldView):
                self.written += [request.id] * decision.is_written
            elif isinstance(decision, Begin | Continue):
                self.written.append(request.id)
                self._count(name, decision)
        self.open -= 1
        self.outcomes[f"{name} {end}"] = self.outcomes.get(f"{name} {end}", 0) + 1
        self._world.note(f"{request.id} {name} {told}")
        self._world.etcd.clients.remove(client)

    def _count(self, name: str, decision: Begin | Continue) -> None:
        """Count which event met which phase."""
        if isinstance(decision, Continue):
            self._world.count_move(_EVENTS[name].__name__, decision.before.phase)
        elif decision.replaced and decision.replaced.phase is RolloutPhase.SUPERSEDED:
            self._world.count_move(SupersedeAsked.__name__, RolloutPhase.PREPARING)


def _said(decision: Written) -> str:
    if isinstance(decision, HoldView):
        word = "hold" if decision.is_written else "had"
        return f"{', '.join(decision.names)} {word} release {decision.release}"
    return f"{type(decision).__name__} {decision.rollout.id}"
