"""Traffic that is counted and not followed one by one: what guardrails judge a release by.

While a gateway is told to count, a number of requests pass between two of its reports. Each gets
its release by the gateway's own route; those of a bad release fail more often than not.
"""

from random import Random
from typing import Any, Protocol

from tests.builders import SERVICE
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.observation import Counted
from vctl_agent.local import AgentState
from vctl_plans.routing import Asked, Choice, choose
from vctl_plans.statistics import ErrorClass, Sample

REQUESTS = 16
"""That pass a gateway between two reports."""

_FAILING = 0.7
_SOUND = Sample(latency_s=0.2)
_FAILED = Sample(latency_s=0.2, error=ErrorClass.SERVER)


class _NoMetrics:
    def count_end(self, *_counted: Any) -> None:
        """Show nothing to anybody."""


class Gateway(Protocol):
    """Whose requests are counted."""

    process: Any
    live: Any
    name: str
    starts: int
    tell_statistics: Any


class Traffic:
    """One gateway's counted traffic.

    Args:
        gateway: Whose.
        random: What is drawn from.
        bad: Releases that fail.
    """

    def __init__(self, gateway: Gateway, random: Random, bad: set[int]) -> None:
        self._gateway = gateway
        self._random = random
        self._bad = bad
        metrics: Any = _NoMetrics()
        name = f"{gateway.name}-gateway-{gateway.starts}"
        self._counting = Counting(name, metrics, clock=gateway.process.clock)
        self._is_counting = False

    def watch(self, agent: AgentState) -> None:
        """Begin to count, or stop."""
        self._counting.watch(agent.watched)
        if agent.watched and not self._is_counting:
            self._is_counting = True
            self._gateway.process.after(agent.report_interval_s, self._pass)

    def _pass(self) -> None:
        """Have requests pass, tell the counts, and go on while anybody wants to know."""
        live = self._gateway.live
        agent, at = live.acted.agent, live.acted.known.routes.get(SERVICE)
        if agent is None or not agent.watched:
            self._is_counting = False
            return
        for _ in range(REQUESTS if at else 0):
            self._count(at)
        self._gateway.tell_statistics(self._counting.told())
        self._gateway.process.after(agent.report_interval_s, self._pass)

    def _count(self, at: Any) -> None:
        known = self._gateway.live.acted.known
        asked = Asked(f"session:{int(self._random.random() * 1000)}")
        choice = choose(at.route, asked, known.groups)
        if isinstance(choice, Choice):
            digest = known.digest((SERVICE, choice.release))
            is_bad = choice.release in self._bad and self._random.random() < _FAILING
            counted = Counted(SERVICE, choice.release, digest, at.revision)
            self._counting.add(counted, _FAILED if is_bad else _SOUND)
