"""Timing side by side: interleaved rounds, other programs' CPU noted, ratios of pairs first.

Absolute rates of a shared machine move by 15 % between minutes; the ratio of two cases within one
round does not. So every round runs every case once, in another order, and a case is judged by the
median of its rounds' ratios, never by its best run.
"""

import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

QUIET_CORES = 0.12
"""A sample with more CPU than this (in cores) used by others is noisy."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE_COLUMNS = (3, 4)  # idle and iowait, of the numbers of /proc/stat's first line
_GUEST_COLUMNS = 8  # from here on counted within user and nice


@dataclass(slots=True)
class Sample:
    """One run of one case."""

    wall_s: float = 0.0
    cpu_s: float = 0.0  # of this process and its children
    foreign_cores: float = 0.0  # CPU of everything else, the hypervisor's included, per second

    @property
    def is_quiet(self) -> bool:
        return self.foreign_cores <= QUIET_CORES


@dataclass(frozen=True, slots=True)
class Case:
    """Something to time; `run` treats `size_bytes` bytes."""

    name: str
    run: Callable[[], object]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """A case's figures; all are medians over its samples."""

    name: str
    ratios: Mapping[str, float]  # to each base: how many times as fast as it
    gb_per_s: float
    gb_per_s_p25: float
    gb_per_s_p75: float
    cpu_s_per_gb: float
    foreign_cores: float
    samples: int
    quiet: int


@dataclass(slots=True)
class Rounds:
    """What was measured: the samples of each case, one a round."""

    cases: Sequence[Case]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def rows(self, bases: Sequence[str]) -> list[Row]:
        return [self._row(case, bases) for case in self.cases]

    def _row(self, case: Case, bases: Sequence[str]) -> Row:
        samples = self.samples[case.name]
        gigabytes = case.size_bytes / 1e9
        rates = [gigabytes / sample.wall_s for sample in _quiet_or_all(samples)]
        low, middle, high = _quartiles(rates)
        return Row(
            name=case.name,
            ratios={base: self._ratio(case.name, base) for base in bases if base in self.samples},
            gb_per_s=middle,
            gb_per_s_p25=low,
            gb_per_s_p75=high,
            cpu_s_per_gb=statistics.median(sample.cpu_s for sample in samples) / gigabytes,
            foreign_cores=statistics.median(sample.foreign_cores for sample in samples),
            samples=len(samples),
            quiet=sum(sample.is_quiet for sample in samples),
        )

    def _ratio(self, name: str, base: str) -> float:
        """Take the median over the rounds in which both were quiet; over all, if there is none."""
        pairs = list(zip(self.samples[name], self.samples[base], strict=True))
        quiet = [pair for pair in pairs if pair[0].is_quiet and pair[1].is_quiet]
        return statistics.median(his.wall_s / mine.wall_s for mine, his in quiet or pairs)


def run_rounds(
    cases: Sequence[Case],
    *,
    rounds: int,
    before_each: Callable[[], object],
    said: Callable[[str], object],
) -> Rounds:
    """Run every case once a round, each time in another order.

    Args:
        cases: What to time.
        rounds: How often.
        before_each: Brings the machine into the state to be measured; not timed.
        said: Told of each sample.
    """
    result = Rounds(cases, {case.name: [] for case in cases})
    order = random.Random(7)  # noqa: S311  any order does, the same in each run
    for number in range(rounds):
        for case in order.sample(cases, len(cases)):
            before_each()
            with timed() as sample:
                case.run()
            result.samples[case.name].append(sample)
            rate = case.size_bytes / sample.wall_s / 1e9
            noise = "" if sample.is_quiet else f", noisy ({sample.foreign_cores:.2f} cores)"
            said(f"round {number + 1}: {case.name}: {rate:.2f} GB/s{noise}")
    return result


@contextmanager
def timed() -> Iterator[Sample]:
    """Yield a sample that is filled when the block ends."""
    sample = Sample()
    busy, own, begun = _busy_s(), _own_s(), time.perf_counter()
    yield sample
    sample.wall_s = time.perf_counter() - begun
    sample.cpu_s = _own_s() - own
    others = _busy_s() - busy - sample.cpu_s
    sample.foreign_cores = max(0.0, others / sample.wall_s)


def _own_s() -> float:
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + of_children.ru_utime + of_children.ru_stime


def _busy_s() -> float:
    numbers = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    counted = (
        int(number)
        for column, number in enumerate(numbers[:_GUEST_COLUMNS])
        if column not in _IDLE_COLUMNS
    )
    return sum(counted) * _TICK_S


def _quiet_or_all(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.is_quiet] or list(samples)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
