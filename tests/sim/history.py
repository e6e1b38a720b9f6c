"""One history from a seed: a fleet, a time of trouble, then peace, in which all ends."""

import contextlib
import gc
import logging
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Iterator
from random import Random

import msgspec
import structlog

from tests.builders import SERVICE
from tests.sim.checks import Checks
from tests.sim.clients import Clients
from tests.sim.facts import Loads
from tests.sim.faults import FAULTS, End
from tests.sim.operators import Operators
from tests.sim.troubles import Trouble, draw_troubles
from tests.sim.world import Broken, World
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import wanted

ENDS_WITHIN_S = 700.0
_LEASES_S = 9.0
NO_PLACE = "finds no place"
_FRESH = 900
_QUIET = structlog.make_filtering_bound_logger(logging.CRITICAL)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a history is made of; it is repeated by this alone."""

    seed: int
    nodes: int = 0  # 0: drawn
    until_s: float = 0.0  # when peace begins; 0: drawn
    without: tuple[int, ...] = ()  # troubles that are left out, by their place in the list

    @property
    def arguments(self) -> str:
        """How it is asked for on the command line."""
        said = f"--seed {self.seed} --histories 1"
        said += f" --nodes {self.nodes}" if self.nodes else ""
        said += f" --until {self.until_s:g}" if self.until_s else ""
        return said + (f" --without {','.join(map(str, self.without))}" if self.without else "")


class Outcome(msgspec.Struct, kw_only=True):
    """How a history went."""

    seed: int
    broken: str = ""  # what did not hold; empty: everything held
    transcript: str = ""  # of one that broke, or where it was asked for
    events: int = 0
    nodes: int = 0
    phases: dict[str, int] = {}  # how often each was entered
    troubles: dict[str, int] = {}  # that really began
    commands: dict[str, int] = {}
    requests: dict[str, int] = {}
    moves: dict[str, int] = {}  # event in phase


def size_of(random: Random) -> int:
    """Return a fleet's size: mostly small, up to 50."""
    if random.random() < 0.003:
        return random.randint(11, 50)
    return random.choices([3, 4, 5, 6, 8, 10], [75, 15, 5, 2.5, 1.5, 1])[0]


class History:
    """One run of one spec."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        drawn = Random(f"{spec.seed}/history")  # noqa: S311
        size, until_s = size_of(drawn), drawn.uniform(10, 28)
        releases = drawn.choices([0, 1, 2, 3], [10, 30, 40, 20])[0]
        places = drawn.choices([8, 3, 2, 1], [40, 15, 30, 15])[0]
        trouble = Random(f"{spec.seed}/troubles")  # noqa: S311
        self.troubles = draw_troubles(trouble, list(FAULTS), until_s=until_s)
        self.size = spec.nodes or size
        self.until_s = min(until_s, spec.until_s or until_s)
        self.world = World(str(spec.seed), self.size, releases=releases, places=places)
        self.checks = Checks(self.world)
        self.world.on_accept = self.checks.begin
        self.clients = Clients(self.world)
        self.operators = Operators(self.world)
        self.begun: dict[str, int] = {}
        self._by_phase: dict[str, list[Trouble]] = {}
        self._lasting: dict[int, tuple[Trouble, End]] = {}
        self._phase: RolloutPhase | None = None
        self._route_revision = 0

    def run(self, *, is_told: bool = False) -> Outcome:
        """Run it all; what does not hold is in the outcome."""
        world, broken = self.world, ""
        with _alone(self.spec.seed):
            try:
                self._live()
            except Broken as cause:
                broken = str(cause)
            except Exception as cause:  # noqa: BLE001  a bug breaks a history too
                broken = f"{type(cause).__name__}: {cause}"
            finally:
                world.kernel.after_each = lambda: None
                world.stop()
        memory = self.checks.memory
        return Outcome(
            seed=self.spec.seed,
            broken=broken,
            transcript=world.transcript() if broken or is_told else "",
            events=world.kernel.count,
            nodes=self.size,
            phases=memory.phases,
            troubles=self.begun,
            commands=self.operators.outcomes,
            requests=world.requests,
            moves=world.moves,
        )

    def _live(self) -> None:
        world, kernel = self.world, self.world.kernel
        kernel.after_each = self._after_each
        world.start()
        for place, trouble in enumerate(self.troubles):
            if place in self.spec.without:
                continue
            if trouble.phase:
                self._by_phase.setdefault(trouble.phase, []).append(trouble)
            elif trouble.at_s < self.until_s:
                kernel.after(trouble.at_s, None, self._begin, trouble)
        self.clients.surge(3, within_s=self.until_s)
        kernel.run_until(self.until_s)
        self._make_peace()
        self._end_what_runs()
        self._serve_anew()
        self._look_back()

    # -- trouble -------------------------------------------------------------------------------

    def _after_each(self) -> None:
        world = self.world
        if not world.facts:
            return
        for fact in world.facts:
            if type(fact) is Loads and fact.is_served:
                self.clients.surge(2, within_s=0.6, at=fact.node.gateway)
        self.checks.judge()
        service = world.service
        if service.rollout and service.rollout.phase is not self._phase:
            self._phase = service.rollout.phase
            for trouble in self._by_phase.pop(self._phase, ()):
                if not world.is_calm:
                    world.kernel.after(trouble.at_s, None, self._begin, trouble)
        if service.route_revision != self._route_revision:
            self._route_revision = service.route_revision
            self.clients.surge(2, within_s=1.5)

    def _begin(self, trouble: Trouble) -> None:
        world = self.world
        if world.is_calm:
            return
        command = trouble.kind.removeprefix("press ")
        if command != trouble.kind:
            if world.was_restored and not world.is_accepted:
                return  # a command has no memory, and would write on what nobody follows
            self.operators.press(command)
            self.begun[trouble.kind] = self.begun.get(trouble.kind, 0) + 1
            return
        end = FAULTS[trouble.kind](world, trouble)
        if end is None:
            return
        world.note(f"-- {trouble}")
        self.begun[trouble.kind] = self.begun.get(trouble.kind, 0) + 1
        number = len(self.begun) * 1000 + world.kernel.count  # one of its own
        self._lasting[number] = (trouble, end)
        world.kernel.after(trouble.lasts_s, None, self._end, number)

    def _end(self, number: int) -> None:
        trouble, end = self._lasting.pop(number, (None, None))
        if trouble and end:
            self.world.note(f"-- end of {trouble.kind}")
            end()

    # -- peace ---------------------------------------------------------------------------------

    def _make_peace(self) -> None:
        """Let all that lasts end, and start what is down; then let leases run out."""
        world, operators = self.world, self.operators
        world.is_calm = True
        world.note("-- peace")
        for number in list(self._lasting):
            self._end(number)
        world.heal()
        world.kernel.run_until(world.kernel.now + _LEASES_S)
        world.kernel.run_until(world.kernel.now + 60.0, is_over=lambda: not operators.open)
        if operators.open:
            raise Broken(f"I8: {operators.open} commands do not end")

    def _until_it_ends(self, limit_s: float = ENDS_WITHIN_S) -> None:
        world = self.world

        def is_over() -> bool:
            phase = world.phase
            return phase is None or phase.is_terminal or phase is RolloutPhase.PAUSED

        world.kernel.run_until(world.kernel.now + limit_s, is_over=is_over)
        if not is_over():
            raise Broken(f"I8: the rollout does not end: {world.rollout}")

    def _end_what_runs(self) -> None:
        """Wait; what is paused is let go on, else aborted, else rolled back to what serves."""
        self._until_it_ends()
        ways = ["on", "on", "abort", "rollback --now", "on", "on", "rollback --now --to stable"]
        for way in [*ways, "on", "on", "on"]:
            rollout = self.world.rollout
            if rollout is None or rollout.phase.is_terminal:
                return
            on = "promote" if rollout.awaits_promote else "resume"
            self._press(on if way == "on" else way)
            self._until_it_ends()
        rollout = self.world.rollout
        if rollout and not rollout.phase.is_terminal:
            raise Broken(f"I8: no way out of {rollout.phase}: {rollout.sentence}")

    def _press(self, command: str, *, fresh: int = 0) -> None:
        world, operators = self.world, self.operators
        operators.press(command, fresh=fresh)
        world.kernel.run_until(world.kernel.now + 30.0, is_over=lambda: not operators.open)
        if operators.open:
            raise Broken(f"I8: {command} does not end")
        world.kernel.run_until(world.kernel.now + 0.001)

    def _serve_anew(self) -> None:
        """Roll a new release out, which works whatever happened before; then all is in order."""
        world = self.world
        self._press("start", fresh=_FRESH)
        while True:
            self._until_it_ends()
            if not (world.rollout and world.rollout.awaits_promote):
                break
            self._press("promote")
        rollout, route = world.rollout, world.route
        assert rollout
        # With few places a release of a plan that cannot wait for one may find none, and is
        # refused; then what served before has to serve on. What is retained gives way.
        has_no_place = NO_PLACE in self.operators.refusal and not self._has_place()
        has_converged = rollout.phase is RolloutPhase.CONVERGED and not rollout.unconfirmed
        if not (has_converged or has_no_place):
            raise Broken(f"I8: a sound rollout ended {rollout.phase}: {rollout.sentence}")
        # After a restored backup what nobody knows any more goes once it was watched for a drain.
        world.kernel.run_until(world.kernel.now + (45.0 if world.was_restored else 8.0))
        names = {world.service.releases[n].engine_name for n in wanted(route, rollout)} - {""}
        for node in world.present():
            at = node.gateway.live.acted.known.routes.get(SERVICE)
            if at is None or at.revision != world.service.route_revision:
                raise Broken(f"I8: {node.name} does not act on the route")
            held = set(node.engine.adapters)
            if held != names:
                raise Broken(f"I8: {node.name} holds {sorted(node.engine.adapters)}, not {names}")
            if node.engine.asked or node.gateway.references.total:
                raise Broken(f"I4: {node.name} still counts requests")

    def _has_place(self) -> bool:
        """Whether engines have a place beside all that serves."""
        world = self.world
        serving = world.route.serving if world.route else frozenset[int]()
        names = {world.service.releases[n].engine_name for n in serving} - {""}
        return len(names) < world.places

    def _look_back(self) -> None:
        """I10: what was written can be read, and each operator's own request is in it."""
        reasons = self.checks.memory.reasons
        lost = [name for name in self.operators.written if name not in reasons]
        if lost and not self.world.was_restored:
            raise Broken(f"I10: nothing tells of {lost}")


@contextlib.contextmanager
def _alone(seed: int) -> Iterator[None]:
    """Have no other event loop, no logs, and no garbage collection in between."""
    loop, config, drawn = _get_running_loop(), structlog.get_config(), random.getstate()
    random.seed(seed)  # pauses before another try are drawn from it
    structlog.configure(wrapper_class=_QUIET)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _set_running_loop(loop)
        random.setstate(drawn)
        structlog.configure(**config)
        if was_enabled:
            gc.enable()


def run(spec: Spec, *, is_told: bool = False) -> Outcome:
    """Run one history; *is_told* wants its transcript though all holds."""
    try:
        history = History(spec)
    except Exception as cause:  # noqa: BLE001  its groundwork is laid by what is tested
        return Outcome(seed=spec.seed, broken=f"{type(cause).__name__}: {cause}")
    return history.run(is_told=is_told)
