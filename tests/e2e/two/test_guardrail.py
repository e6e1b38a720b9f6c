"""A release that begins to fail at 50 % goes back by itself, on real processes and real traffic."""

import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import FAULTS, SERVICE, Fleet
from vctl_plans.keys import Keys
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Cause
from vctl_plans.routing import SESSION_HEADER
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("two")]

CLIENTS_EACH = 4

# The latency's limit is wide: two engines share this machine with everything else that runs here.
PLAN = """
service: {service}
strategy: weighted
steps: [{{weight: 10, soak: 2s}}, {{weight: 50, soak: 30s}}, {{weight: 100, soak: 2s}}]
release: {{adapter: {{source: {adapter}}}}}
guardrails: {{error_ratio: 1.5, p99_ratio: 50, min_requests: 20, interval: 1s}}
"""


class Clients:
    """Sessions without end, each asking once; how each was answered, and by which release."""

    def __init__(self, fleet: Fleet) -> None:
        self._urls = list(fleet.dev.gateway_urls.values())
        self._sessions = itertools.count()
        self._stopping = threading.Event()
        self.answers: list[tuple[int, int]] = []  # status, release

    def ask(self, url: str, session: str) -> tuple[int, int]:
        """Return the status and the release of one answer."""
        body = {"model": SERVICE, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", SESSION_HEADER: session},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, int(response.headers["x-vctl-release"])
        except urllib.error.HTTPError as error:
            return error.code, int(error.headers.get("x-vctl-release", 0))

    def _keep_asking(self, url: str) -> None:
        while not self._stopping.is_set():
            self.answers.append(self.ask(url, f"session-{next(self._sessions)}"))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Have them ask inside the block."""
        threads = [
            threading.Thread(target=self._keep_asking, args=(url,))
            for url in self._urls
            for _ in range(CLIENTS_EACH)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def wait_for(self, more: int, *, within_s: float = 60) -> None:
        """Wait until *more* further answers have come."""
        wanted, deadline = len(self.answers) + more, time.monotonic() + within_s
        while len(self.answers) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _counts_are_kept(fleet: Fleet) -> bool:
    """Whether any node's statistics are in etcd."""
    prefix = Keys(fleet.dev.options.fleet).statistics
    with GatewayReader(StoreSettings(endpoints=(fleet.dev.layout.endpoint,))) as reader:
        return bool(reader.list(prefix).entries)


def test_release_that_begins_to_fail_goes_back_by_itself(fleet: Fleet, tmp_path: Path) -> None:
    """The command exits with 3 and says the figures; the release serves nobody any more."""
    old, clients = fleet.stable(), Clients(fleet)
    revoked = fleet.service().current_route.revoked
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(service=SERVICE, adapter=fleet.adapter(fleet.another())))
    with clients.asking():
        following = fleet.begin("rollout", "start", str(plan))
        fleet.until(lambda: fleet.service().current_route.weight == 50, within_s=90)
        service = fleet.service()
        new = fleet.rollout().to_release
        assert {(200, old), (200, new)} == set(clients.answers), "nothing fails yet"
        fleet.until(lambda: _counts_are_kept(fleet))
        (fleet.folder / FAULTS).write_text(service.releases[new].engine_name + "\n")
        failing_from = len(clients.answers)

        out, err = following.communicate(timeout=90)
        ended = len(clients.answers) + 2 * CLIENTS_EACH  # what was on its way then
        clients.wait_for(100)

    assert following.returncode == 3, (out, err, fleet.logs())
    rollout, route = fleet.rollout(), fleet.service().current_route
    assert (RolloutPhase.ROLLED_BACK, Cause.GUARDRAIL) == (rollout.phase, rollout.cause)
    assert (old, 0, {*revoked, new}) == (route.stable, route.candidate, {*route.revoked})
    assert new not in revoked
    (breach,) = [line for line in out.splitlines() if "guardrail breached" in line]
    assert "requests failed on the candidate, 0 of" in breach
    assert f"traffic returns to release {old}; release {new} is revoked" in breach
    assert {(200, old), (500, new)} <= set(clients.answers[failing_from:])
    assert {(200, old)} == set(clients.answers[ended:])
    fleet.until(lambda: not _counts_are_kept(fleet))
    _is_told_afterwards(fleet, tmp_path / "report.html", old=old, new=new)


def _is_told_afterwards(fleet: Fleet, page: Path, *, old: int, new: int) -> None:
    """What each decision rested on stands in the history, and the page draws it."""
    said = fleet.vctl("rollout", "show", "-o", "json")
    assert said.code == 0, said
    seen = [moment["entry"]["seen"] for moment in json.loads(said.out)["decisions"]]
    breached = next(s for s in seen if "windows" in s and "candidate" not in s["traffic"])
    assert old == breached["traffic"]["stable"]
    assert breached["windows"][-1]["candidate"]["failures"] > 0
    assert breached["windows"][-1]["stable"].get("failures", 0) == 0
    prepared = next(each for each in seen if each["traffic"].get("weight") == 10)
    assert {str(old): 2, str(new): 2}.items() <= prepared["holding"].items()
    assert set(fleet.dev.gateway_urls) == set(prepared["arrivals"])
    assert 0 == fleet.vctl("rollout", "show", "--html", str(page)).code
    assert "Nothing to show" not in page.read_text()
