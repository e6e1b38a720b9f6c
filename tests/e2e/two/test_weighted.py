"""A weighted rollout on a live fleet: the share of sessions at each step, and the ways out."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import sqrt
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet
from vctl_plans.phase import RolloutPhase
from vctl_plans.routing import SESSION_HEADER
from vctl_plans.share import share

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("two")]

SESSIONS = [f"session-{n}" for n in range(240)]
SIGMAS = 4.0  # a fair split is outside of this once in 16,000 times; these sessions are fixed


class Sessions:
    """Clients that each keep a session; what release answered each of them, in order."""

    def __init__(self, fleet: Fleet) -> None:
        self._urls = list(fleet.dev.gateway_urls.values())
        self.answers: dict[str, list[int]] = {session: [] for session in SESSIONS}
        self._stopping = threading.Event()

    def ask_all(self) -> dict[str, int]:
        """Have each session ask once, through any gateway; return the release that answered."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._ask, SESSIONS))
        return {session: releases[-1] for session, releases in self.answers.items()}

    def _ask(self, session: str) -> None:
        body = {"model": SERVICE, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        url = self._urls[(len(self.answers[session]) + hash(session)) % len(self._urls)]
        request = urllib.request.Request(
            f"{url}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", SESSION_HEADER: session},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            self.answers[session].append(int(response.headers["x-vctl-release"]))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Have all of them ask, over and over."""
        failures: list[BaseException] = []

        def keep_asking() -> None:
            try:
                while not self._stopping.is_set():
                    self.ask_all()
            except BaseException as error:  # noqa: BLE001  told by the test
                failures.append(error)

        thread = threading.Thread(target=keep_asking)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
        assert failures == []

    def went_back(self, old: int, new: int) -> list[str]:
        """Return the sessions that *old* answered after *new* had."""
        return [
            session
            for session, seen in self.answers.items()
            if new in seen and old in seen[seen.index(new) :]
        ]


def _expected(fleet: Fleet, weight: float) -> set[str]:
    salt = fleet.service().current_route.salt
    return {s for s in SESSIONS if share(salt, f"session:{s}") < weight}


def _assert_share(fleet: Fleet, answers: dict[str, int], new: int, weight: float) -> None:
    """The candidate's share is the weight's, and it is the same sessions for every gateway."""
    moved = {session for session, release in answers.items() if release == new}
    bound = SIGMAS * sqrt(weight * (100 - weight) / len(SESSIONS))
    assert abs(100 * len(moved) / len(SESSIONS) - weight) <= bound
    assert _expected(fleet, weight) == moved


def _plan(fleet: Fleet, tmp_path: Path, *steps: str) -> str:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\nsteps: [{', '.join(steps)}]\n"
        f"release: {{adapter: {{source: {fleet.adapter(fleet.another())}}}}}\n"
    )
    return str(plan)


def _candidate(fleet: Fleet) -> int:
    return fleet.rollout().to_release


TEN = "{weight: 10, soak: 200ms, manual: true}"
FIFTY = "{weight: 50, soak: 200ms, manual: true}"
ALL = "{weight: 100, soak: 500ms}"


def test_each_step_moves_its_share_and_no_session_goes_back(fleet: Fleet, tmp_path: Path) -> None:
    """Manual steps hold the weight until they are promoted; the command ends with exit code 4."""
    old, sessions = fleet.stable(), Sessions(fleet)
    _assert_share(fleet, sessions.ask_all(), old, 100)

    said = fleet.vctl("rollout", "start", _plan(fleet, tmp_path, TEN, FIFTY, ALL))
    assert said.code == 4, said
    assert "step 1 of 3 waits for vctl rollout promote" in said.out
    assert "vctl rollout promote" in said.err
    new = _candidate(fleet)
    _assert_share(fleet, sessions.ask_all(), new, 10)
    assert fleet.vctl("rollout", "resume").code == 7

    said = fleet.vctl("rollout", "promote", "--reason", "looks well")
    assert said.code == 4, said
    _assert_share(fleet, sessions.ask_all(), new, 50)
    assert "step 2/3" in fleet.vctl("rollout", "status").out

    said = fleet.vctl("rollout", "promote")
    assert said.code == 0, said
    _assert_share(fleet, sessions.ask_all(), new, 100)
    assert (new, 0) == (fleet.stable(), fleet.service().current_route.candidate)
    assert [] == sessions.went_back(old, new)


def test_steps_follow_by_themselves_under_load(fleet: Fleet, tmp_path: Path) -> None:
    """10, 50 and 100 with short soaks, while all sessions ask: none is lost, none goes back."""
    old, sessions = fleet.stable(), Sessions(fleet)
    adapter = fleet.adapter(fleet.another())
    with sessions.asking():
        said = fleet.vctl(
            "rollout", "start", "--adapter", str(adapter), "--steps", "10,50,100", "--soak", "2s"
        )
    new = _candidate(fleet)
    sessions.ask_all()

    assert said.code == 0, said
    told = [line for line in said.out.splitlines() if "of traffic moves to" in line]
    assert [f"step {n} of 3" in line for n, line in enumerate(told, 1)] == [True] * 3
    assert [] == sessions.went_back(old, new)
    assert {old, new} == {r for seen in sessions.answers.values() for r in seen}


def test_pause_keeps_the_weight_and_resume_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    """Also with the conductor's agent killed meanwhile: the soak is gone on with."""
    plan = _plan(fleet, tmp_path, "{weight: 50, soak: 2s}", "{weight: 100, soak: 0}")
    following = fleet.begin("rollout", "start", plan)
    fleet.until_phase(RolloutPhase.SOAKING)
    paused = fleet.vctl("rollout", "pause", "--reason", "look first")
    assert paused.code == 0, paused
    following.communicate(timeout=30)
    assert following.returncode == 4
    assert 50 == fleet.service().current_route.weight
    fleet.restart_agents("n1")
    assert RolloutPhase.PAUSED is fleet.rollout().phase

    said = fleet.vctl("rollout", "resume")

    assert said.code == 0, (said, fleet.logs())


@pytest.mark.parametrize(
    ("command", "is_revoked"), [(("rollout", "abort"), False), (("rollback", "--now"), True)]
)
def test_way_back_at_fifty_returns_every_session(
    fleet: Fleet, tmp_path: Path, command: tuple[str, ...], is_revoked: bool
) -> None:
    """Abort lets it be tried again, rollback revokes it; after either no session is on it."""
    old, sessions = fleet.stable(), Sessions(fleet)
    assert 4 == fleet.vctl("rollout", "start", _plan(fleet, tmp_path, FIFTY, ALL)).code
    new = _candidate(fleet)
    _assert_share(fleet, sessions.ask_all(), new, 50)

    said = fleet.vctl(*command)

    assert said.code == 0, said
    assert {old} == set(sessions.ask_all().values())
    route = fleet.service().current_route
    assert (old, 0, 0.0) == (route.stable, route.candidate, route.weight)
    assert is_revoked == (new in route.revoked)
    again = fleet.vctl("rollout", "retry", "--no-watch")
    assert again.code == (7 if is_revoked else 0), again
    if not is_revoked:
        assert 0 == fleet.vctl("rollout", "abort").code
