"""Client sessions: each has a key, and sends requests through whichever gateway it meets."""

from random import Random

from tests.sim.gateway import Gateway
from tests.sim.world import World

USERS = ("ann", "bo", "cy", "")
TENANTS = ("acme", "blue")


class Session:
    """One client's conversation."""

    __slots__ = ("key", "name", "tenant", "user")

    def __init__(self, number: int) -> None:
        self.name = f"s{number}"
        self.key = f"session:{self.name}"
        self.user = USERS[number % len(USERS)]
        self.tenant = TENANTS[number % len(TENANTS)]


class Clients:
    """Sends requests when they hurt most: around each write of the route."""

    def __init__(self, world: World, *, sessions: int = 6) -> None:
        self._world = world
        self._random = Random(f"{world.seed}/clients")  # noqa: S311
        self.sessions = [Session(number) for number in range(sessions)]

    def surge(self, count: int, *, within_s: float, at: Gateway | None = None) -> None:
        """Send some pairs of requests within a time, to any gateways or *at* one."""
        kernel = self._world.kernel
        for _ in range(count):
            kernel.after(self._random.random() * within_s, None, self._send, at)

    def _send(self, at: Gateway | None) -> None:
        random, world = self._random, self._world
        gateways = [at] if at else [n.gateway for n in world.nodes.values()]
        gateways = [gateway for gateway in gateways if gateway.is_running]
        if not gateways:
            return
        gateway = gateways[int(random.random() * len(gateways))]
        for _ in range(2):
            self._ask(gateway)

    def _ask(self, gateway: Gateway) -> None:
        random, world = self._random, self._world
        session = self.sessions[int(random.random() * len(self.sessions))]
        named = 0
        if random.random() < 0.1:
            named = random.randint(1, max(1, len(world.service.releases)))
        takes_s = 6.0 if random.random() < 0.1 else random.random()
        world.count_request(gateway.serve(session, release=named, takes_s=takes_s))
