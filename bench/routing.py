"""What a choice costs, and what a gateway keeps: no sockets, one process.

    python -m bench.routing

Times are of `routing.choose` alone, the median of many rounds, by the process's own CPU, so that
what else runs counts for little. Memory is what Python holds more after many sessions, and after
many route changes, than after the first thousand of them.
"""

import logging
import statistics
import time
import timeit
import tracemalloc
from collections.abc import Callable

import msgspec
import structlog

from bench.gateway import a_release
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.moved import Moved
from vctl_agent.gateway.persist import saved
from vctl_agent.gateway.tally import Tallies
from vctl_agent.gateway.wire.heads import Heads
from vctl_agent.local import AgentState, ReadyRelease
from vctl_plans.codec import encode
from vctl_plans.groups import Group, Groups
from vctl_plans.keys import Keys
from vctl_plans.route import Override, Route
from vctl_plans.routing import Asked, choose
from vctl_plans.store.port import KeyValue, Update

CALLS, ROUNDS = 20_000, 15
SESSIONS = 100_000
CHANGES = 10_000
SETTLED = 1_000
KEPT = 12  # releases that etcd has at a time


def _time_us(call: Callable[[], object]) -> float:
    runs = timeit.repeat(call, timer=time.process_time, number=CALLS, repeat=ROUNDS)
    return 1e6 * statistics.median(runs) / CALLS


def times() -> dict[str, float]:
    """Return the microseconds of a choice, by what decides it."""
    groups = Groups(groups=(Group(name="staff", users=("ann", "bo")),))
    known = {groups.digest: groups}
    stable = Route(service="support", stable=1, salt="s")
    split = msgspec.structs.replace(stable, candidate=2, weight=25.0, pinnable=(1, 2))
    grouped = msgspec.structs.replace(split, overrides=(Override(group=groups.digest, release=2),))
    session = Asked("session:4711", user="carl")
    return {
        "stable": _time_us(lambda: choose(stable, session)),
        "weighted": _time_us(lambda: choose(split, session)),
        "pinned": _time_us(lambda: choose(split, Asked("session:4711", pin=1))),
        "named": _time_us(lambda: choose(split, Asked("", 2))),
        "group, not in it": _time_us(lambda: choose(grouped, session, known)),
    }


def _grown(step: Callable[[int], object], count: int) -> tuple[int, int]:
    """Return the bytes that Python holds more after `SETTLED` steps, and after *count*."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    settled = 0
    for number in range(count):
        step(number)
        if number == SETTLED:
            settled = tracemalloc.get_traced_memory()[0] - before
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return settled, held


def _changed() -> Callable[[int], None]:
    """Return what changes the route to a new release, as etcd tells it, and serves a request."""
    keys, number_of = Keys("bench"), {}
    live = Live(Acted(), prefix=keys.services, clock=lambda: 0.0)
    tallies = Tallies()

    def change(step: int) -> None:
        number = step + 1
        release = a_release(number)
        number_of[number] = KeyValue(
            keys.release("support", number), encode(release), number, number
        )
        number_of.pop(number - KEPT, None)
        route = encode(Route(service="support", stable=number, salt="s"))
        at = KeyValue(keys.route("support"), route, 1, number)
        entries = {each.key: each for each in (*number_of.values(), at)}
        live.learn(Update(number, entries, frozenset(entries)))
        model = release.engine_name
        ready = ReadyRelease(service="support", number=number, digest=release.digest, model=model)
        live.accept(AgentState(boot_id="bench", engine_url="http://e", ready=(ready,)))
        saved(live.acted, "bench")
        tallies.of("support", number).seconds.add(0.1)

    return change


def _sessions() -> Callable[[int], None]:
    moved = Moved()
    return lambda number: moved.note("support", f"session:{number:032}", 2, candidate=2)


def _headers() -> Callable[[int], object]:
    heads = Heads()
    return lambda number: heads.of([b"Host", b"h", b"Authorization", b"Bearer %064d" % number])


def main() -> None:
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)  # each change would be a line
    structlog.configure(wrapper_class=quiet)
    for name, us in times().items():
        print(f"choose, {name:18} {us:6.2f} us")
    for name, step, count in (
        ("sessions noted", _sessions(), SESSIONS),
        ("clients' sets of fields", _headers(), SESSIONS),
        ("route changes", _changed(), CHANGES),
    ):
        settled, held = (grown / 2**20 for grown in _grown(step, count))
        print(f"{name:24} MiB after {SETTLED:,}: {settled:6.2f}, after {count:,}: {held:6.2f}")


if __name__ == "__main__":
    main()
