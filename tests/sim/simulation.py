"""One simulated run: a time of faults, then peace, in which everything must come to its end."""

from random import Random

from tests.builders import a_plan, an_adapter_wish
from tests.sim.actors import Conductor, Operator, abort, promote, resume
from tests.sim.fleet import Mood, Node
from tests.sim.world import Broken, World
from vctl_plans import operate
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import wanted

EVENTS = 600
PEACE_ROUNDS = 400


class Simulation:
    """A fleet, two conductors of which one is in office, and an operator."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  a run is repeated by its seed
        self.world = World(self.random)
        count = self.random.randint(1, 4)
        self.nodes = [Node(self.world, f"n{i}", Mood(works=1.0)) for i in range(count)]
        self.conductors = [self._elected()]
        self.operator = Operator(self.world)
        self.takeover_odds = self.random.choice([0.01, 0.03, 0.1, 0.5])

    def _mood(self) -> Mood:
        random = self.random
        return Mood(works=random.choice([0.3, 0.9]), refuses=random.choice([0, 0, 0, 0.2]))

    def _elected(self) -> Conductor:
        self.world.fence += 1
        return Conductor(self.world)

    def run(self) -> None:
        """Run it all; raise `Broken` with the log when something does not hold."""
        try:
            for number in range(100, 100 + self.random.randint(0, 3)):
                self._serve_anew(number)
            self._trouble()
            for _ in range(EVENTS):
                self._disturbed()
            self._calm()
            self._end_what_runs()
            self._serve_anew(99)
        except Exception as cause:
            raise Broken("\n".join([*self.world.log[-60:], repr(cause)])) from cause

    def _trouble(self) -> None:
        self.world.note("trouble")
        for node in self.nodes:
            node.mood = self._mood()
        self.conductors.append(Conductor(self.world))

    # -- faults --------------------------------------------------------------------------------

    def _disturbed(self) -> None:
        random = self.random
        self.world.now += random.expovariate(1.0)
        what = random.random()
        rollout = self.world.rollout
        if rollout and rollout.unload and not rollout.phase.is_terminal and what < 0.15:
            self._race()
        elif rollout and rollout.phase is RolloutPhase.SOAKING and what < 0.08:
            self.operator.press(random)
            self.operator.finish(random)
        elif what < 0.50:
            self._node_event(random.choice(self.nodes))
        elif what < 0.88:
            self._conductor_event()
        elif what < 0.91:
            self.operator.press(random)
            if random.random() < 0.5:
                self.operator.finish(random)
        elif what < 0.97:
            self.operator.finish(random, loses_reply=random.random() < 0.2)
        else:
            self._fault(random.choice(self.nodes))

    def _race(self) -> None:
        """Press while nodes begin to unload; the conductor goes on with the reports it has."""
        self.operator.press(self.random)
        self.operator.finish(self.random)
        self.conductors[0].pending = None
        self.conductors[0].read_services()
        self.conductors[0].decide()
        self.conductors[0].write()

    def _node_event(self, node: Node) -> None:
        if not node.is_alive:
            if self.random.random() < 0.2:
                node.hear_route()  # the gateway lives on without its agent
            return
        random = self.random
        for _ in range(random.randint(1, 4)):
            act = random.randrange(5)
            if act == 0:
                node.look(random, is_late=random.random() < 0.3)
            elif act == 1:
                node.hear_route()
            elif act == 2:
                node.work(random)
            elif act == 3:
                node.answer()
            else:
                node.publish()

    def _conductor_event(self) -> None:
        random = self.random
        if random.random() < self.takeover_odds:
            self.conductors = [self._elected(), self.conductors[0]]
        conductor = self.conductors[0] if random.random() < 0.8 else self.conductors[1]
        if random.random() < 0.8:
            conductor.read_services()
        if random.random() < 0.8:
            conductor.read_reports()
        conductor.decide()
        if random.random() < 0.8:
            conductor.write()
        elif random.random() < 0.3:
            conductor.pending = None  # it died between deciding and writing

    def _fault(self, node: Node) -> None:
        what = self.random.randrange(5)
        if what == 0:
            node.vanish()
        elif what in {1, 2} and not node.is_alive:
            node.boot()
        elif what == 3:
            node.restart_engine()
        elif what == 4:
            node.mood.is_deaf = not node.mood.is_deaf

    # -- peace ---------------------------------------------------------------------------------

    def _calm(self) -> None:
        self.world.note("peace")
        self.operator.pending = None
        if len(self.nodes) > 1 and self.random.random() < 0.3:
            lost = self.nodes.pop()
            lost.vanish()
            self.world.note(f"{lost.name} is lost for good")
        for node in self.nodes:
            node.mood = Mood(works=1.0)
            node.boot()
        self.conductors = [self._elected()]

    def _round(self) -> None:
        """Have everybody do their part once; then let time pass to what they wait for."""
        conductor, before = self.conductors[0], self.world.revision
        for node in self.nodes:
            node.look(self.random, is_late=False)
            node.work(self.random)
            node.hear_route()
            node.answer()
            node.publish()
        conductor.read_services()
        conductor.read_reports()
        conductor.decide()
        conductor.write()
        self.world.now += 1.0
        if conductor.wake_at and self.world.revision == before:
            self.world.now = max(self.world.now, min(conductor.wake_at, self.world.now + 1.0))

    def _until_it_ends(self) -> None:
        for _ in range(PEACE_ROUNDS):
            rollout = self.world.rollout
            if rollout is None or rollout.phase.is_terminal:
                return
            if rollout.phase is RolloutPhase.PAUSED:
                return
            self._round()
        raise Broken(f"I8: the rollout does not end: {self.world.rollout}")

    def _end_what_runs(self) -> None:
        """Wait; what is paused is let go on, else aborted, else rolled back to what serves."""
        on = [resume, *[promote] * 4] if self.random.random() < 0.7 else [resume]
        ways = [*on, resume, abort, self.operator.back_to(0), resume, *[promote] * 4]
        ways.append(self.operator.back_to(self.world.route.stable))
        self._until_it_ends()
        for way in ways:
            rollout = self.world.rollout
            if rollout is None or rollout.phase.is_terminal:
                return
            self._press(way)
            self._until_it_ends()
        rollout = self.world.rollout
        if rollout and not rollout.phase.is_terminal:
            raise Broken(f"I8: no way out of {rollout.phase}: {rollout.sentence}")

    def _press(self, act: object) -> object:
        self.operator.asked += 1
        self.operator.begin(act)  # type: ignore[arg-type]
        return self.operator.finish(self.random)

    def _serve_anew(self, number: int) -> None:
        """Roll a new release out, which works whatever happened before; then all is in order."""
        roster = tuple(sorted(self.world.boots))
        self._press(
            lambda service, request: operate.start(
                service, a_plan(), wish=an_adapter_wish(number), roster=roster, request=request
            )
        )
        self._until_it_ends()
        rollout, route = self.world.rollout, self.world.route
        assert rollout is not None
        if rollout.phase is not RolloutPhase.CONVERGED or rollout.unconfirmed:
            raise Broken(f"I8: a sound rollout ended {rollout.phase}: {rollout.sentence}")
        for node in self.nodes:
            if node.route_revision != self.world.service.route_revision:
                raise Broken(f"I8: {node.name} does not act on the route")
            if node.probed != set(wanted(route, rollout)):
                raise Broken(
                    f"I8: {node.name} holds {node.probed}, wanted {wanted(route, rollout)}"
                )
