"""Groups and strict switches on a live fleet, by the commands that people type."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.support import SERVICE, Fleet, ask

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("two"),
]


def _answers(fleet: Fleet, **more: object) -> set[int]:
    """Return the releases that every gateway answers by, asked several times."""
    return {ask(url, **more)[0] for url in fleet.dev.gateway_urls.values() for _ in range(4)}  # type: ignore[arg-type]


BETA = "{name: beta, users: [ann, bo]}"
CANARY = "{name: canary, header: {x-tier: gold}}"


def test_groups_get_a_release_and_keep_it(fleet: Fleet, tmp_path: Path) -> None:
    """Whatever later rollouts do to all others, until an operator ends it."""
    old, (first, second) = fleet.stable(), fleet.others()
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: user-group\nsoak: 200ms\ngroups: [{BETA}, {CANARY}]\n"
        f"release: {{adapter: {{source: {fleet.adapter(first)}}}}}\n"
    )

    said = fleet.vctl("rollout", "start", str(plan))

    assert said.code == 0, said
    theirs = fleet.rollout().to_release
    assert f"converged (2/2) on release {theirs} for its groups" in said.out
    assert {theirs} == _answers(fleet, user="bo")
    assert {theirs} == _answers(fleet, headers={"x-tier": "gold"})
    assert {theirs} == _answers(fleet, user="cleo", headers={"x-vctl-user": "ann"})
    assert {old} == _answers(fleet, user="cleo", headers={"x-tier": "silver"})
    explained = fleet.vctl("route", "explain", "--user", "bo")
    assert (0, f"release {theirs}: it is in the group beta\n") == (explained.code, explained.out)
    assert f"groups on {theirs}" in fleet.vctl("status").out
    assert 0 == fleet.vctl("rollout", "start", str(plan)).code, "the same again is done already"

    said = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter(second)))
    assert said.code == 0, said
    assert ({theirs}, {fleet.stable()}) == (_answers(fleet, user="bo"), _answers(fleet))

    said = fleet.vctl("route", "override", "rm", "canary", "--reason", "the beta is over")
    assert said.code == 0, said
    assert {fleet.stable()} == _answers(fleet, user="bo")
    assert theirs not in fleet.service().current_route.revoked


def test_group_is_held_to_what_served_before(fleet: Fleet) -> None:
    """At once, by a write of the route alone, and until an operator ends it."""
    old = fleet.stable()
    adapter = str(fleet.adapter(fleet.another()))
    planned = json.loads(fleet.vctl("rollout", "plan", "--adapter", adapter, "-o", "json").out)
    said = fleet.vctl("rollout", "start", "--adapter", adapter)
    assert said.code == 0, said
    assert planned["release"] == fleet.stable()
    assert old in planned["retained"]

    rollout, who = fleet.rollout(), ("--group", "held", "--user", "bo")
    said = fleet.vctl("route", "override", "set", "--release", str(old), *who, "--reason", "INC")
    assert said.code == 0, said
    assert f"held of {SERVICE} are held to release {old}, on 2 of 2 nodes" in said.out
    assert ({old}, {fleet.stable()}) == (_answers(fleet, user="bo"), _answers(fleet))
    assert rollout == fleet.rollout(), "no rollout began"
    assert "INC" in fleet.vctl("events").out

    said = fleet.vctl("route", "override", "rm", "held")
    assert said.code == 0, said
    assert {fleet.stable()} == _answers(fleet, user="bo")


def test_rollback_now_takes_from_the_groups_what_they_got(fleet: Fleet) -> None:
    """All others never notice, and the release is revoked."""
    old = fleet.stable()
    adapter = str(fleet.adapter(fleet.another()))
    start = ("rollout", "start", "--adapter", adapter, "--soak", "200ms")
    said = fleet.vctl(*start, "--user", "bo")
    assert said.code == 0, said
    theirs = fleet.rollout().to_release
    assert ({theirs}, {old}) == (_answers(fleet, user="bo"), _answers(fleet))

    said = fleet.vctl("rollback", "--now")

    assert said.code == 0, said
    assert {old} == _answers(fleet, user="bo") | _answers(fleet)
    assert theirs in fleet.service().current_route.revoked


@dataclass
class Timed:
    """Clients that note when each request began, when it was answered, and by which release."""

    urls: list[str]
    answers: list[tuple[float, float, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def _keep_asking(self, url: str) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                release, _ = ask(url, max_tokens=2)
            except (AssertionError, OSError) as error:
                self.failures.append(f"{url}: {error}")
                continue
            self.answers.append((began, time.monotonic(), release))

    @contextmanager
    def asking(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._keep_asking, args=(url,))
            for url in self.urls
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def late(self, new: int) -> list[float]:
        """Return by how much old answers began after the first new one had been given."""
        first = min(ended for _, ended, release in self.answers if release == new)
        return [began - first for began, _, r in self.answers if r != new and began > first]


def test_strict_switch_mixes_no_answers_and_loses_no_request(fleet: Fleet, tmp_path: Path) -> None:
    """Once any gateway has answered by the new release, no request that begins gets the old one."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: full-switch\nconsistency: strict\n"
        f"release: {{adapter: {{source: {fleet.adapter(fleet.another())}}}}}\n"
    )
    clients = Timed(list(fleet.dev.gateway_urls.values()))
    with clients.asking():
        fleet.until(lambda: len(clients.answers) > 20)
        said = fleet.vctl("rollout", "start", str(plan))
        seen = len(clients.answers)
        fleet.until(lambda: len(clients.answers) > seen + 20)

    assert said.code == 0, said
    assert "first all gateways are fenced" in said.out
    assert "hold new requests: they switch now" in said.out
    assert [] == clients.failures
    assert [] == clients.late(fleet.stable())
    assert fleet.service().current_route.hold is None


def test_strict_switch_that_one_gateway_cannot_join_is_undone(fleet: Fleet, tmp_path: Path) -> None:
    """Traffic stays where it was, requests that waited are answered, and it can be tried again."""
    old = fleet.stable()
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"service: {SERVICE}\nstrategy: weighted\nconsistency: strict\n"
        "steps: [{weight: 50, soak: 0, manual: true}, {weight: 100, soak: 0}]\n"
        "deadlines: {converge: 3s, hold: 3s}\n"
        f"release: {{adapter: {{source: {fleet.adapter(fleet.another())}}}}}\n"
    )
    said = fleet.vctl("rollout", "start", str(plan))
    assert said.code == 4, said
    stopped = fleet.dev.program("n2", "gateway")
    stopped.signal(signal.SIGSTOP)
    try:
        said = fleet.vctl("rollout", "promote")
        answered = {ask(fleet.dev.gateway_urls["n1"])[0] for _ in range(4)}
    finally:
        stopped.signal(signal.SIGCONT)

    assert said.code == 4, said
    assert "the strict switch is undone" in said.out
    assert "n2" in said.out
    route = fleet.service().current_route
    assert (old, 50, None) == (route.stable, route.weight, route.hold)
    assert answered <= {old, fleet.rollout().to_release}
    fleet.until(lambda: all(r.gateway_ok for r in fleet.dev.read().present().values()))
    again = fleet.vctl("rollout", "resume")
    assert again.code == 0, (again, fleet.stand())
    assert fleet.stable() != old
