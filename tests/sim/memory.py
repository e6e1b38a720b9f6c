"""What the checks remember of a history, to judge by it what comes later."""

import msgspec

from tests.sim.world import World
from vctl_plans.rollout import Entry
from vctl_plans.written import Written

RATES = 1.12
"""Clocks differ by less than this factor."""


class Last(msgspec.Struct, frozen=True):
    """A session's last answer."""

    revision: int  # of the route that it was decided by
    era: int
    release: int
    rank: int  # of the release, then


class Memory:
    """What the checks remember."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written = Written()  # as the last write of rollout or route left them
        self.history: dict[str, list[Entry]] = {}
        self.acked: dict[str, int] = {}  # gateway -> the newest route that it said it acts on
        self.revoked_at: dict[int, int] = {}  # release -> route revision
        self.ranks: dict[int, tuple[int, dict[int, int]]] = {}  # route revision -> era, ranks
        self.era = 0  # writes that took traffic back
        self.strict: set[int] = set()  # route revisions that switched all gateways at once
        self.switched = 0  # the newest of them that a request was decided by
        self.answered: dict[str, Last] = {}  # by session
        self.listed_at: dict[int, list[tuple[float, float]]] = {}  # release -> when, drain_s
        self.apart_at: dict[tuple[str, int], tuple[float, float]] = {}  # node, release: the same
        self.unlisted_at: dict[int, float] = {}  # release -> when it was to be unloaded no more
        self.was_apart: dict[tuple[str, int], tuple[float, float, float]] = {}  # and until when
        self.holders: dict[int, frozenset[str]] = {}  # release -> who was counted as holding it
        self.salts: dict[str, tuple[str, str]] = {}
        self.soaked_s = 0.0  # of the present step, by the one clock that is true
        self.soaking_since = 0.0
        self.reasons: set[str] = set()
        self.phases: dict[str, int] = {}  # how often each was entered
