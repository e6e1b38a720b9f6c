"""What may have to be read again, and what is found of it."""

import msgspec

from tests.builders import SERVICE, a_release, a_rollout, a_route
from vctl_plans.diagnosis import Severity
from vctl_plans.inspection import Reached, Unreached
from vctl_plans.phase import RolloutPhase
from vctl_plans.reachability import needed_artifacts, needed_releases, of_reached
from vctl_plans.snapshot import Fleet, Service

RELEASES = {number: a_release(number) for number in range(1, 7)}


def a_service(**route: object) -> Service:
    return Service(name=SERVICE, releases=RELEASES, route=a_route(**route))


def test_what_serves_and_what_a_rollback_goes_to_is_needed() -> None:
    """The last good one, though nothing holds it any more; not what was revoked, or passed by."""
    service = a_service(stable=5, candidate=0, good=(1, 3, 4, 5), revoked=(4,))
    assert {5, 3} == needed_releases(service)


def test_what_a_running_rollout_brings_or_leaves_is_needed() -> None:
    """It may be aborted."""
    service = a_service(stable=1, good=(1,))
    moving = a_rollout(RolloutPhase.PREPARING)
    service = msgspec.structs.replace(service, rollout=moving)
    assert {1, moving.to_release} == needed_releases(service)


def test_release_whose_key_is_gone_is_no_place_to_look() -> None:
    assert {2} == needed_releases(a_service(stable=2, good=(99,)))


def test_each_place_is_named_once_by_its_newest_release() -> None:
    """Releases share what they do not change."""
    same = {
        n: msgspec.structs.replace(RELEASES[n], components=RELEASES[1].components) for n in (1, 2)
    }
    service = Service(name=SERVICE, releases=same, route=a_route(stable=2, good=(1, 2)))
    assert [2] == [each.number for each in needed_artifacts(Fleet(services={SERVICE: service}))]


def test_what_serves_is_an_error_what_a_rollback_needs_a_warning_and_silence_too() -> None:
    fleet = Fleet(services={SERVICE: a_service(stable=5, good=(3, 5))})
    gone = tuple(Unreached(service=SERVICE, number=n, problem="gone") for n in (5, 3))
    answers = {"a": Reached(request="q", asked=60, unreached=52, problems=gone)}
    found = list(of_reached(answers, {"b"}, fleet))

    severities = [each.severity for each in found]
    assert [Severity.ERROR, Severity.WARNING, Severity.ERROR, Severity.WARNING] == severities
    assert ["node a"] * 3 + ["node b"] == [each.where for each in found]
    assert "50 more artifacts" in found[2].what
    assert all(each.remedy for each in found)
