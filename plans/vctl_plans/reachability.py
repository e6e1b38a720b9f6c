"""Which artifacts a fleet may have to read again, and what is found when nodes try: for `doctor`.

A node that is replaced, or whose disk fails, reads what is served from its source; and so does
every node when a rollback goes to a release that was unloaded and collected.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from vctl_plans.diagnosis import Finding, error, warning
from vctl_plans.inspection import Reached, Unreached
from vctl_plans.phase import Component
from vctl_plans.release import Artifact
from vctl_plans.rollout import wanted
from vctl_plans.snapshot import Fleet, Service

MAX_UNREACHED = 50
"""Of them in one answer: enough to see what is wrong, small enough to write."""


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact, with the newest release that needs it."""

    service: str
    number: int
    component: Component
    artifact: Artifact


def needed_artifacts(fleet: Fleet) -> tuple[Needed, ...]:
    """Return what may have to be read again, each place once; by service, the newest first."""
    found: dict[tuple[str, str], Needed] = {}
    for _, service in sorted(fleet.services.items()):
        for number in sorted(needed_releases(service), reverse=True):
            for component, made in service.releases[number].staged.items():
                found.setdefault(
                    (made.root, made.source),
                    Needed(service=service.name, number=number, component=component, artifact=made),
                )
    return tuple(found.values())


def needed_releases(service: Service) -> frozenset[int]:
    """Return the releases that are routed, that a rollout brings in, or may go back to."""
    route = service.route
    numbers = set(wanted(route, service.rollout))
    if route:
        numbers.add(route.last_good())
    if service.is_running and service.rollout:
        numbers.add(service.rollout.from_release)
    return frozenset(numbers) & service.releases.keys()


def of_reached(
    answers: Mapping[str, Reached], silent: Collection[str], fleet: Fleet
) -> Iterator[Finding]:
    """Find what nodes cannot read, and who did not say.

    Args:
        answers: By node.
        silent: Who was asked, and did not answer in time.
        fleet: As it was when they were asked.
    """
    for node in sorted(answers):
        answer = answers[node]
        for each in answer.problems:
            yield _of_place(f"node {node}", each, fleet)
        left = answer.unreached - len(answer.problems)
        if left > 0:
            what = f"{left} more artifacts cannot be read at their sources"
            yield error(f"node {node}", what, "mend what is named here, then ask again")
    for node in sorted(silent):
        yield warning(
            f"node {node}",
            "it did not say in time whether it can read what it may need",
            "see that its agent runs, and is of this version; or give --timeout more",
        )


def _of_place(where: str, each: Unreached, fleet: Fleet) -> Finding:
    """What serves now is an error; what a rollback alone would need is a warning."""
    service = fleet.services.get(each.service)
    route = service.route if service else None
    serves = route is not None and each.number in route.serving
    part = "" if each.component is Component.ADAPTER else f"'s {each.component}"
    what = (
        f"release {each.number} of {each.service}{part} cannot be read at its source:"
        f" {each.problem}"
    )
    remedy = each.hint or "put its bytes back where the release says (vctl release show), or push"
    why = "" if serves else "; until then a rollback to it may have to wait, or fail"
    return (error if serves else warning)(where, what, f"{remedy}{why}")
