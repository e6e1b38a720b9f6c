"""What can go wrong. To add a fault, write a function that begins it, and list it in `FAULTS`.

It returns what ends it, or nothing where it cannot happen now.
"""

from collections.abc import Callable, Iterator

from tests.sim.network import Network
from tests.sim.node import Node
from tests.sim.troubles import Trouble
from tests.sim.world import KEYS, World
from vctl_plans.codec import encode
from vctl_plans.inspection import DrainRequest, drain_id
from vctl_plans.store.port import Delete, Put

End = Callable[[], None]
Begin = Callable[[World, Trouble], End | None]


def _nothing() -> None:
    pass


def _node(world: World, trouble: Trouble) -> Node:
    nodes = world.present()
    return nodes[trouble.node % len(nodes)]


def _networks(world: World) -> Iterator[Network]:
    yield world.operators
    for node in world.nodes.values():
        yield node.network
        yield node.gateway.network
    for candidate in world.candidates:
        yield candidate.network


def slow_network(world: World, trouble: Trouble) -> End:
    """All messages take up to seconds, so that they overtake each other."""
    for network in _networks(world):
        network.slowness = 20 + 300 * trouble.strength

    def end() -> None:
        for network in _networks(world):
            network.slowness = 1.0

    return end


def lossy_network(world: World, trouble: Trouble) -> End:
    """Requests and replies get lost."""
    for network in _networks(world):
        network.loss = 0.05 + 0.3 * trouble.strength

    def end() -> None:
        for network in _networks(world):
            network.loss = 0.0

    return end


def late_watches(world: World, trouble: Trouble) -> End:
    """Some hear of changes late."""
    late = [n for i, n in enumerate(_networks(world)) if (i + trouble.node) % 2]
    for network in late:
        network.lag_s = 0.2 + 4 * trouble.strength

    def end() -> None:
        for network in late:
            network.lag_s = 0.0

    return end


def broken_watches(world: World, _trouble: Trouble) -> End:
    """All watches end, and list anew."""
    for client in list(world.etcd.clients):
        client.shake()
    return _nothing


def agent_crash(world: World, trouble: Trouble) -> End:
    """An agent is killed, and returns with another boot."""
    node = _node(world, trouble)
    node.stop_agent()

    def end() -> None:
        if not node.is_agent_alive and not node.is_gone:
            node.start_agent()

    return end


def agent_pause(world: World, trouble: Trouble) -> End | None:
    """An agent is stopped, perhaps beyond its lease, and goes on."""
    agent = _node(world, trouble).agent
    if agent is None:
        return None
    agent.process.pause()
    return agent.process.resume


def gateway_crash(world: World, trouble: Trouble) -> End:
    """A gateway is killed with its requests, and returns with what was on its disk."""
    node = _node(world, trouble)
    node.gateway.process.kill()

    def end() -> None:
        if not node.gateway.process.is_alive and not node.is_gone:
            node.gateway.start()

    return end


def gateway_pause(world: World, trouble: Trouble) -> End:
    """A gateway is stopped, and goes on."""
    process = _node(world, trouble).gateway.process
    process.pause()
    return process.resume


def node_crash(world: World, trouble: Trouble) -> End:
    """A node loses power, and returns with what was on its disk."""
    node = _node(world, trouble)
    node.stop()

    def end() -> None:
        if not node.is_gone:
            node.start()

    return end


def node_vanishes(world: World, trouble: Trouble) -> End | None:
    """A node is gone for good."""
    if len(world.present()) <= 1:
        return None
    node = _node(world, trouble)
    node.is_gone = True
    node.stop()
    return _nothing


def node_joins(world: World, _trouble: Trouble) -> End:
    """A new node comes, with nothing on its disk."""
    node = world.add_node(f"x{len(world.nodes):02}")
    node.start()
    return _nothing


def old_boot_returns(world: World, trouble: Trouble) -> End:
    """A node's machine hangs and is replaced; then the old one wakes up and says its old word."""
    node = _node(world, trouble)
    node.set_aside()

    def end() -> None:
        node.wake_older()
        world.kernel.after(5.0, None, node.end_older)

    return end


def node_drained(world: World, trouble: Trouble) -> End:
    """An operator takes a node out of service, and back."""
    node = _node(world, trouble)
    key = KEYS.request(drain_id(node.name))
    request = DrainRequest(id=drain_id(node.name), nodes=(node.name,), reason="simulated")
    left = {"asked", "ended"}  # what of both has not come yet

    def undrain(come: str) -> None:
        left.discard(come)
        if not left:
            world.write(Delete(key))

    world.write(Put(key, encode(request)), lambda: undrain("asked"))
    return lambda: undrain("ended")


def engine_restart(world: World, trouble: Trouble) -> End:
    """An engine dies, and starts with nothing loaded."""
    node = _node(world, trouble)
    node.engine.stop()

    def end() -> None:
        if not node.is_gone:
            node.engine.start()

    return end


def engine_slow(world: World, trouble: Trouble) -> End:
    """An engine, and the way to the bytes, is slow."""
    mood = _node(world, trouble).engine.mood
    mood.slowness = 2 + 20 * trouble.strength

    def end() -> None:
        mood.slowness = 1.0

    return end


def engine_refuses(world: World, trouble: Trouble) -> End:
    """An engine refuses what it is asked, for now or for good."""
    mood = _node(world, trouble).engine.mood
    mood.refuses = "permanent" if trouble.strength < 0.4 else "temporary"

    def end() -> None:
        mood.refuses = ""

    return end


def engine_lies(world: World, trouble: Trouble) -> End:
    """An engine says yes and does nothing."""
    mood = _node(world, trouble).engine.mood
    mood.lies = True

    def end() -> None:
        mood.lies = False

    return end


def caches_err(world: World, trouble: Trouble) -> End:
    """An engine, or all of them, start anew, and serve of their caches what others left there.

    So what serves fails its probe, perhaps everywhere; until they are started once more.
    """
    nodes = list(world.nodes.values()) if trouble.strength < 0.5 else [_node(world, trouble)]

    def start_anew(*, errs: bool) -> None:
        for node in nodes:
            node.engine.mood.errs = errs
            is_up = node.engine.is_up and not node.is_gone
            node.engine.stop()
            if is_up:
                node.engine.start()

    start_anew(errs=True)
    world.have_erred = True
    return lambda: start_anew(errs=False)


def bytes_spoiled(world: World, trouble: Trouble) -> End:
    """What a node fetches is not what was released, or cannot be read at all."""
    mood = _node(world, trouble).engine.mood
    mood.spoils, mood.is_dry = trouble.strength < 0.5, trouble.strength >= 0.5

    def end() -> None:
        mood.spoils = mood.is_dry = False

    return end


def bad_release(world: World, _trouble: Trouble) -> End | None:
    """What a rollout brings fails most requests, though it loads and passes its probe."""
    number = world.rollout.to_release if world.rollout else 0
    if not number or number == world.route.stable:
        return None
    world.bad.add(number)
    world.ever_bad.add(number)
    return lambda: world.bad.discard(number)


def link_broken(world: World, trouble: Trouble) -> End:
    """Agent and gateway of a node do not hear each other."""
    node = _node(world, trouble)
    node.break_link(is_broken=True)
    return lambda: node.break_link(is_broken=False)


def cut_off(world: World, trouble: Trouble) -> End:
    """A node, or its agent or gateway alone, is cut off from etcd; the gateway serves on."""
    node = _node(world, trouble)
    if trouble.strength < 0.7:
        node.gateway.cut(is_cut=True)
    if trouble.strength > 0.3:
        node.cut(is_cut=True)

    def end() -> None:
        node.gateway.cut(is_cut=False)
        node.cut(is_cut=False)

    return end


def conductor_pause(world: World, _trouble: Trouble) -> End | None:
    """The conductor is stopped, perhaps beyond its lease."""
    candidate = world.in_office()
    if candidate is None:
        return None
    candidate.process.pause()
    return candidate.process.resume


def conductor_pause_at_write(world: World, trouble: Trouble) -> End | None:
    """The conductor is stopped between its next decision and the write."""
    candidate = world.in_office()
    if candidate is None:
        return None

    def pause() -> None:
        candidate.before_commit = _nothing
        candidate.process.pause()
        world.kernel.after(trouble.lasts_s, None, candidate.process.resume)

    candidate.before_commit = pause

    def end() -> None:
        candidate.before_commit = _nothing

    return end


def conductor_crash(world: World, _trouble: Trouble) -> End | None:
    """The conductor is killed, and stands again."""
    candidate = world.in_office()
    if candidate is None:
        return None
    candidate.process.kill()

    def end() -> None:
        if not candidate.process.is_alive:
            candidate.start()

    return end


def conductors_change(world: World, trouble: Trouble) -> End:
    """One conductor after the other is ended, and the next takes over."""

    def change(left: int) -> None:
        candidate = world.in_office()
        if candidate and candidate.process.is_running:
            candidate.hand_over()
        if left and not world.is_calm:
            world.kernel.after(0.2 + trouble.strength * 0.5, None, change, left - 1)

    change(14)
    return _nothing


def conductor_cut_off(world: World, _trouble: Trouble) -> End | None:
    """The conductor is cut off from etcd."""
    candidate = world.in_office()
    if candidate is None:
        return None
    candidate.cut(is_cut=True)
    return lambda: candidate.cut(is_cut=False)


def etcd_away(world: World, _trouble: Trouble) -> End:
    """etcd answers nobody."""
    world.etcd.go_away()
    return world.etcd.come_back


def other_clock(world: World, trouble: Trouble) -> End:
    """A node's or a candidate's clock runs at another rate."""
    rate = 0.95 + 0.1 * trouble.strength
    _node(world, trouble).rate = rate
    candidate = world.candidates[trouble.node % len(world.candidates)]
    candidate.process.rate = 1 / rate
    return _nothing


def backup_restored(world: World, trouble: Trouble) -> End:
    """Another cluster stands in etcd's place, with a backup of some time ago; then it is accepted.

    Until an operator says so, nothing advances. Whoever accepts it takes down what they still know.
    """
    world.kernel.after(trouble.lasts_s, None, world.restore)

    def end() -> None:
        world.kernel.after(2.0 + 6 * trouble.strength, None, world.accept_restore)

    world.keep_backup()
    return end


FAULTS: dict[str, Begin] = {
    function.__name__.replace("_", " "): function
    for function in (
        slow_network,
        lossy_network,
        late_watches,
        broken_watches,
        agent_crash,
        agent_pause,
        gateway_crash,
        gateway_pause,
        node_crash,
        node_vanishes,
        node_joins,
        old_boot_returns,
        node_drained,
        engine_restart,
        engine_slow,
        engine_refuses,
        engine_lies,
        caches_err,
        bytes_spoiled,
        bad_release,
        link_broken,
        cut_off,
        conductor_pause,
        conductor_pause_at_write,
        conductor_crash,
        conductors_change,
        conductor_cut_off,
        etcd_away,
        other_clock,
        backup_restored,
    )
}
