"""Records of rollouts, as a conductor would have left them: for what shows one."""

from tests.builders import a_weighted_plan, some_releases
from vctl_cli.recounting import RolloutRecord, timed
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.plan import Watch
from vctl_plans.release import Actor
from vctl_plans.rollout import Entry, Rollout, Roster
from vctl_plans.seen import Rate, Seen, Traffic, Window

ANN = Actor(user="ann", host="desk", via="https://ci.example/jobs/7")


def windows(count: int, *, every_s: float = 30.0, bad: bool = False) -> tuple[Window, ...]:
    return tuple(
        Window(
            since_s=n * every_s,
            until_s=(n + 1) * every_s,
            candidate=Rate(
                requests=400 + 10 * n,
                failures=40 if bad and n == count - 1 else n % 3,
                p50_s=0.2,
                p99_s=0.9 + 0.03 * (n % 4),
            ),
            stable=Rate(requests=900, failures=2, p50_s=0.21, p99_s=0.95 - 0.02 * (n % 3)),
        )
        for n in range(count)
    )


def followed(nodes: tuple[str, ...], *, fastest_s: float, slowest_s: float) -> dict[str, object]:
    times = {
        node: round(fastest_s + (slowest_s - fastest_s) * n / max(1, len(nodes) - 1), 3)
        for n, node in enumerate(nodes)
    }
    ordered = sorted(times.values())
    slowest = sorted(times, key=lambda node: -times[node])[:64]
    curve = tuple((at, n) for n, at in enumerate(ordered, start=1))
    curve = (*curve[: -1 : max(1, len(nodes) // 39)], curve[-1])
    return {"arrivals": {node: times[node] for node in slowest}, "curve": curve}


def a_record(
    *, nodes: int = 12, ends: P = P.CONVERGED, has_windows: bool = True, is_running: bool = False
) -> RolloutRecord:
    """Return the record of a weighted rollout on *nodes* nodes that ended in *ends*."""
    names = tuple(f"gpu-{n:02d}" for n in range(nodes))
    hold = {"1": nodes, "2": nodes}
    counted = {"windows": windows(10)} if has_windows else {}
    goes_back = ends is P.ROLLED_BACK
    bad = {"windows": windows(4, bad=True)} if has_windows else {}
    ready = followed(names, fastest_s=20, slowest_s=75)
    fast = followed(names, fastest_s=0.2, slowest_s=1.6)
    entries = [
        (P.PREPARING, "release 2 is prepared", None, Traffic(stable=1), {}),
        (P.SHIFTING, "release 2 is ready: 10 % is next", 80, split(10), {"holding": hold, **ready}),
        (P.SOAKING, "10 % routed: soaking 5m", 1.7, split(10), {"holding": hold, **fast}),
        (P.SHIFTING, "soaked 5m: 50 % is next", 300, split(50), {"holding": hold, **counted}),
        (P.SOAKING, "50 % routed: soaking 5m", 1.9, split(50), {"holding": hold, **fast}),
    ]
    if goes_back:
        entries += [
            (P.ROLLING_BACK, "guardrail breached: error ratio <b>: traffic returns to release 1",
             120, Traffic(stable=1), {"holding": hold, **bad}),
            (P.ROLLED_BACK, "rolled back on release 1", 2.2, Traffic(stable=1),
             {"holding": hold, **fast}),
        ]  # fmt: skip
    else:
        entries += [
            (P.SHIFTING, "soaked 5m: 100 % is next", 300, split(100), {"holding": hold, **counted}),
            (P.SETTLING, "release 2 is stable", 2.5, Traffic(stable=2), {"holding": hold, **fast}),
            (P.CONVERGED, "converged", 3.5, Traffic(stable=2), {"holding": hold, **fast}),
        ]
    kept = entries[:-3] if is_running else entries
    made = [
        Entry(
            rollout="r2", seq=n, phase=phase, sentence=sentence, by=ANN, reason="<i>better</i>",
            at=f"2026-01-02T12:{n:02d}:00Z",
            seen=Seen(took_s=took_s, traffic=traffic, **more),  # type: ignore[arg-type]
        )
        for n, (phase, sentence, took_s, traffic, more) in enumerate(kept)
    ]  # fmt: skip
    plan = a_weighted_plan(10, 50, 100, soak_s=300, watch=Watch() if has_windows else None)
    moments = timed(made)
    rollout = Rollout(
        id="20260102-120000-abc123", service="support", plan=plan.digest, strategy="weighted",
        phase=made[-1].phase, from_release=1, to_release=2, roster=Roster(nodes=names).digest,
        roster_size=nodes, steps=3, step=1, sentence=made[-1].sentence, by=ANN,
        confirmed=nodes, back_to=1 if goes_back else 0,
    )  # fmt: skip
    return RolloutRecord(
        rollout=rollout,
        plan=plan,
        nodes=names,
        groups=(),
        releases=tuple(some_releases(2).values()),
        lasted_s=moments[-1].at_s + (60 if is_running else 0),
        decisions=moments,
    )


def split(weight: float) -> Traffic:
    return Traffic(stable=1, candidate=2, weight=weight)
