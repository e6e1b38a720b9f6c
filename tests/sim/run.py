"""Run many histories: ``python -m tests.sim.run --histories 20000 --workers auto``.

Seeds count up from the base seed, which is drawn where none is given and always printed. A history
that breaks is made smaller, and printed with the command that repeats it; the exit code is 1.
"""

import argparse
import multiprocessing
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from tests.sim.history import Outcome, Spec, run
from tests.sim.shrink import shrunk

_CHUNK = 20
_LINE_S = 2.0


class Summary(msgspec.Struct, kw_only=True):
    """What many histories came to."""

    histories: int = 0
    events: int = 0
    sizes: Counter[str] = msgspec.field(default_factory=Counter)
    phases: Counter[str] = msgspec.field(default_factory=Counter)
    troubles: Counter[str] = msgspec.field(default_factory=Counter)
    commands: Counter[str] = msgspec.field(default_factory=Counter)
    requests: Counter[str] = msgspec.field(default_factory=Counter)
    moves: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one more."""
        self.histories += 1
        self.events += outcome.events
        self.sizes[_size(outcome.nodes)] += 1
        for name in ("phases", "troubles", "commands", "requests", "moves"):
            getattr(self, name).update(getattr(outcome, name))

    def __str__(self) -> str:
        lines = [f"{self.histories} histories, {self.events} events"]
        for name in ("sizes", "phases", "troubles", "commands", "requests", "moves"):
            lines.append(f"  {name}:")
            counted = sorted(getattr(self, name).items(), key=lambda item: (-item[1], item[0]))
            lines += [f"    {count:9}  {what}" for what, count in counted]
        return "\n".join(lines)


def _size(nodes: int) -> str:
    for most in (3, 5, 10, 20, 50):
        if nodes <= most:
            return f"up to {most:2} nodes"
    return "more nodes"


def told(outcome: Outcome, spec: Spec) -> str:
    """Return a broken history for people: the smallest that breaks alike, and how to repeat it."""
    smallest, broken, tries = shrunk(spec, outcome)
    return "\n".join(
        [
            f"seed {spec.seed}: {outcome.broken}",
            f"the smallest history that breaks so ({tries} tries):",
            broken.transcript,
            broken.broken,
            f"again: python -m tests.sim.run {smallest.arguments}",
        ]
    )


def chunk(seeds: Iterable[int]) -> list[Outcome]:
    """Run some histories."""
    return [run(Spec(seed=seed)) for seed in seeds]


def outcomes(seeds: range, *, workers: int) -> Iterator[Outcome]:
    """Run histories on some processes; yield what they came to as they end."""
    parts = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    if workers == 1:
        for part in parts:
            yield from chunk(part)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for found in pool.imap_unordered(chunk, parts):
            yield from found


def _shown(found: Iterable[Outcome], wanted: int) -> tuple[Summary, list[Outcome]]:
    summary, broken, began, last = Summary(), [], time.monotonic(), 0.0
    for outcome in found:
        summary.add(outcome)
        if outcome.broken:
            broken.append(outcome)
        now = time.monotonic()
        if now - last > _LINE_S:
            last = now
            rate = summary.histories / (now - began)
            sys.stderr.write(
                f"\r{summary.histories}/{wanted} histories, {rate:.0f}/s, {len(broken)} broken "
            )
    sys.stderr.write(f"\r{summary.histories} histories in {time.monotonic() - began:.0f} s\n")
    return summary, broken


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--seed", type=int, help="the first seed; drawn where it is not given")
    parser.add_argument("--workers", default="auto", help="processes: a number, or auto")
    parser.add_argument("--nodes", type=int, default=0, help="of every history; 0: drawn")
    parser.add_argument("--until", type=float, default=0.0, help="when peace begins, in seconds")
    parser.add_argument("--without", default="", help="troubles to leave out, as in 1,4")
    parser.add_argument("--first", action="store_true", help="stop at the first that breaks")
    return parser.parse_args(argv)


def _one(given: argparse.Namespace, seed: int) -> int:
    """Run one history as it is asked for, and print all of it."""
    without = tuple(int(place) for place in given.without.split(",") if place)
    spec = Spec(seed=seed, nodes=given.nodes, until_s=given.until, without=without)
    outcome = run(spec, is_told=True)
    sys.stdout.write(f"{outcome.transcript}\n{outcome.broken or 'everything held'}\n")
    return bool(outcome.broken)


def _first(seeds: range) -> int:
    """Run until something breaks, and say what."""
    for seed in seeds:
        outcome = run(Spec(seed=seed))
        if outcome.broken:
            sys.stdout.write(f"seed {seed}: {outcome.broken}\n")
            return 1
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run; return the exit code."""
    given = _arguments(argv)
    seed = secrets.randbelow(2**40) if given.seed is None else given.seed
    if given.histories == 1:
        return _one(given, seed)
    workers = (os.cpu_count() or 1) if given.workers == "auto" else int(given.workers)
    sys.stdout.write(f"base seed {seed}\n")
    sys.stdout.flush()
    seeds = range(seed, seed + given.histories)
    if given.first:
        return _first(seeds)
    summary, broken = _shown(outcomes(seeds, workers=workers), given.histories)
    sys.stdout.write(f"{summary}\n")
    for outcome in broken[:3]:
        sys.stdout.write(f"\n{told(outcome, Spec(seed=outcome.seed))}\n")
    if broken:
        seeds_broken = ", ".join(str(outcome.seed) for outcome in broken)
        sys.stdout.write(f"\n{len(broken)} histories broke; seeds {seeds_broken}\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
