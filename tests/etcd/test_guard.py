"""What answers' headers tell: a stale member, another cluster, a restored backup."""

import pytest

from vctl_plans.errors import RestoredBackup
from vctl_plans.store.guard import Fingerprint, HeaderGuard, StaleMemberError


def learned(guard: HeaderGuard, *, term: int = 5, revision: int = 100) -> Fingerprint:
    seen = Fingerprint(1, term, revision)
    guard.check_quorum(seen, before=guard.fingerprint, endpoint="a")
    return guard.fingerprint


def test_the_guard_remembers_the_furthest_that_it_saw():
    guard = HeaderGuard(3)
    learned(guard, revision=100)
    guard.check_quorum(Fingerprint(1, 5, 90), before=Fingerprint(1, 5, 80), endpoint="b")
    assert guard.fingerprint == Fingerprint(1, 5, 100)


def test_another_cluster_is_an_alarm_that_stays():
    guard = HeaderGuard(1)
    before = learned(guard)
    with pytest.raises(RestoredBackup, match="cluster id was 1 and is now 2"):
        guard.check_member(Fingerprint(2, 9, 900))
    with pytest.raises(RestoredBackup):
        guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="a")


def test_what_an_earlier_process_knew_counts():
    guard = HeaderGuard(1, known=Fingerprint(1, 5, 100))
    with pytest.raises(RestoredBackup):
        guard.check_member(Fingerprint(2, 5, 100))


@pytest.mark.parametrize("stale", [Fingerprint(1, 4, 100), Fingerprint(1, 5, 99)])
def test_one_stale_member_is_never_taken_for_a_restored_backup(stale: Fingerprint):
    guard = HeaderGuard(3)
    before = learned(guard)
    for _ in range(20):
        with pytest.raises(StaleMemberError):
            guard.check_quorum(stale, before=before, endpoint="b")
    guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="c")


def test_a_majority_that_went_back_is_a_restored_backup():
    guard = HeaderGuard(3)
    before = learned(guard)
    stale = Fingerprint(1, 2, 50)
    for endpoint in "ab":
        with pytest.raises(StaleMemberError):
            guard.check_quorum(stale, before=before, endpoint=endpoint)
    with pytest.raises(RestoredBackup, match="revision 50 after term 5, revision 100"):
        guard.check_quorum(stale, before=before, endpoint="c")


def test_a_good_answer_ends_the_suspicion():
    guard = HeaderGuard(1)
    before = learned(guard)
    for _ in range(5):
        for _ in range(2):
            with pytest.raises(StaleMemberError):
                guard.check_quorum(Fingerprint(1, 5, 99), before=before, endpoint="a")
        guard.check_quorum(Fingerprint(1, 5, 100), before=before, endpoint="a")


def test_a_member_counting_terms_alone_teaches_the_guard_nothing():
    guard = HeaderGuard(3)
    before = learned(guard)
    guard.check_member(Fingerprint(1, 50, 100))
    guard.check_quorum(Fingerprint(1, 5, 101), before=before, endpoint="b")
    with pytest.raises(StaleMemberError):
        guard.check_member(Fingerprint(1, 4, 100))
