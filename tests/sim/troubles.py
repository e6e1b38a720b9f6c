"""What goes wrong in a history, and who presses what: drawn from the seed before it begins.

Each entry begins at its time, or a little after a rollout has entered a phase, and ends by itself.
So the shrinker can leave entries out.
"""

from random import Random

import msgspec

from vctl_plans.phase import RolloutPhase as P

_PHASES = (P.PREPARING, P.SHIFTING, P.SOAKING, P.SETTLING, P.ROLLING_BACK, P.PAUSED)


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the list."""

    kind: str  # of `FAULTS`, or a command after "press "
    at_s: float = 0.0
    phase: str = ""  # not at `at_s`, but that long after a rollout entered this phase
    node: int = 0
    lasts_s: float = 0.0
    strength: float = 0.0  # 0 to 1: how bad

    def __str__(self) -> str:
        when = f"{self.at_s:.3f}s after {self.phase}" if self.phase else f"at {self.at_s:.3f}s"
        return f"{self.kind} {when}, node {self.node}, for {self.lasts_s:.2f}s"


_RARE = {
    "backup restored": 0.15,
    "bad release": 2.0,
    "node joins": 0.5,
    "node vanishes": 0.5,
    "other clock": 0.5,
}

_PRESSED = {
    "start": 6.0,
    "rollback --now": 2.0,
    "rollback --now --to N": 1.0,
    "rollback --now --to stable": 0.5,
    "rollback": 1.0,
    "pause": 2.0,
    "resume": 2.0,
    "abort": 2.0,
    "promote": 1.5,
    "promote --full": 0.7,
    "retry": 1.0,
    "override rm": 0.7,
    "override set": 0.9,
}
_WORST: dict[str, tuple[str, ...]] = {
    P.PREPARING: ("abort", "start", "rollback --now", "pause"),
    P.SHIFTING: ("abort", "rollback --now", "pause", "promote"),
    P.SOAKING: ("pause", "promote", "promote --full", "abort", "rollback --now"),
    P.SETTLING: ("rollback --now", "rollback --now --to stable", "pause", "abort"),
    P.ROLLING_BACK: ("rollback --now --to N", "rollback --now", "start", "abort"),
    P.CONVERGED: ("rollback --now", "start", "override rm", "override rm", "override set"),
    P.PAUSED: ("resume", "promote", "abort", "rollback --now", "start"),
}


def draw_troubles(random: Random, kinds: list[str], *, until_s: float) -> tuple[Trouble, ...]:
    """Return what goes wrong in a history, and what is pressed, in the order of their times."""
    odds = [_RARE.get(kind, 1.0) for kind in kinds]
    some = random.choices(kinds, odds, k=random.randint(1, 6))
    faults = [_fault(random, random.choice(some), until_s) for _ in range(random.randint(1, 7))]
    pressed = [_press(random, until_s) for _ in range(random.randint(1, 5))]
    if random.random() < 0.15:
        faults.append(_bad_release(random))
    first = Trouble(kind="press start", at_s=0.5 + random.random())
    return tuple(sorted([first, *faults, *pressed], key=lambda t: (t.phase, t.at_s)))


def _bad_release(random: Random) -> Trouble:
    """Return the fault that guardrails are for: while traffic moves, and long enough to be seen."""
    lasts_s = random.uniform(8.0, 16.0)
    delay_s = random.random() * 0.3
    return Trouble(kind="bad release", phase=P.SHIFTING, at_s=delay_s, lasts_s=lasts_s)


def _fault(random: Random, kind: str, until_s: float) -> Trouble:
    phase = random.choice(_PHASES) if random.random() < 0.5 else ""
    return Trouble(
        kind=kind,
        at_s=random.random() * (0.6 if phase else until_s * 0.7),
        phase=phase,
        node=random.randrange(1000),
        lasts_s=random.choice([0.5, 2.0, 5.0, 10.0]) * (0.5 + random.random()),
        strength=random.random(),
    )


def _press(random: Random, until_s: float) -> Trouble:
    if random.random() < 0.55:
        phase = random.choice(list(_WORST))
        command = random.choice(_WORST[phase])
        delay_s = random.choice([0.0, 0.005, 0.05, 0.5, 3.0]) * random.random()
        return Trouble(kind=f"press {command}", phase=phase, at_s=delay_s)
    command = random.choices(list(_PRESSED), list(_PRESSED.values()))[0]
    return Trouble(kind=f"press {command}", at_s=random.random() * until_s)
