"""The values that `chronicle` makes: what stands beside a decision in the history, for people."""

import msgspec


class Traffic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How traffic was split once the decision was written."""

    stable: int = 0  # 0: nothing served
    candidate: int = 0  # 0: nothing moved
    weight: float = 0.0  # percent on the candidate
    groups: tuple[int, ...] = ()  # releases that groups had of their own


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one release's requests came to."""

    requests: int = 0
    failures: int = 0  # that speak against the release
    p50_s: float | None = None  # None: no request was answered
    p99_s: float | None = None

    @property
    def error_rate(self) -> float | None:
        """The share of requests that failed; None: there were none."""
        return self.failures / self.requests if self.requests else None


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What gateways counted of both releases in one window of a step's watch."""

    since_s: float  # ages of the phase; below zero: counted before it began
    until_s: float
    candidate: Rate
    stable: Rate
    is_earlier: bool = False  # stable's is of routes before: it gets no requests any more


def shifted(window: Window, later_s: float) -> Window:
    """Return *window* with its ages so much later, as of a phase that began so much earlier."""
    return msgspec.structs.replace(
        window,
        since_s=round(window.since_s + later_s, 3),
        until_s=round(window.until_s + later_s, 3),
    )


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen when a decision was made."""

    took_s: float | None = None  # age of the phase that it ended; None: an operator's
    traffic: Traffic = Traffic()
    holding: dict[str, int] = {}  # number of a release -> nodes that report it ready
    arrivals: dict[str, float] = {}  # node -> age at which it had done what the phase waited for
    curve: tuple[tuple[float, int], ...] = ()  # age, and how many had by then
    windows: tuple[Window, ...] = ()
