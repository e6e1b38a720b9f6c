"""Releases made of what nodes hash, and of what is pushed, on a live fleet; then rolled out."""

import threading
from pathlib import Path

import pytest

from tests.e2e.support import Fleet, Said, ask
from tests.sources.servers import serving
from vctl_plans import weights
from vctl_plans.phase import Component
from vctl_plans.release import Artifact

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("three"),
]


def create(fleet: Fleet, *arguments: str) -> Said:
    return fleet.vctl("release", "create", "support", *arguments)


def newest(fleet: Fleet, component: Component = Component.ADAPTER) -> tuple[int, Artifact]:
    releases = fleet.service().releases
    return max(releases), releases[max(releases)].components[component]


def test_what_three_nodes_hash_alike_is_rolled_out(fleet: Fleet):
    """The command asks, and reads nothing: the place that it names is the nodes' own."""
    adapter = fleet.new_adapter("hashed", 22)
    expected = weights.scan(adapter)
    said = create(fleet, "--adapter", str(adapter), "--hash-on-nodes", "3")
    assert 0 == said.code, said
    assert "found alike by all that were asked (3)" in said.err
    assert not weights.manifest_path(adapter).exists()

    number, made = newest(fleet)
    size = sum(file.size for file in expected.files)
    assert (expected.root, size) == (made.root, made.size_bytes)
    rolled = fleet.vctl("rollout", "start", "--release", str(number))
    assert 0 == rolled.code, rolled
    assert "converged (3/3)" in rolled.out
    answers = {ask(url)[0] for url in fleet.dev.gateway_urls.values()}
    assert {number} == answers


def test_place_that_nodes_may_not_read_makes_nothing(fleet: Fleet, tmp_path: Path):
    """Each is named with why; nothing outside the allowed roots is ever hashed."""
    before = newest(fleet)[0]
    said = create(fleet, "--adapter", str(tmp_path), "--hash-on-nodes", "3")

    assert (1, "") == (said.code, said.out)
    assert "outside the allowed roots" in said.err
    for node in fleet.dev.gateway_urls:
        assert node in said.err
    assert before == newest(fleet)[0]


class OnlyOnce(set[str]):
    """Paths that are answered wrongly the second time that they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self._lock = threading.Lock()

    def __contains__(self, path: object) -> bool:
        if path != "/p/system.txt":
            return False
        with self._lock:
            self._asked += 1
            return self._asked == 2


def test_nodes_that_read_other_bytes_make_nothing(fleet: Fleet, tmp_path: Path):
    """A web server that answers one of three nodes with another byte: who found what is told."""
    prompt = tmp_path / "p"
    prompt.mkdir()
    (prompt / "system.txt").write_text("You are kind.")
    weights.save(weights.scan(prompt, kind="plain"), weights.manifest_path(prompt))
    before = newest(fleet)[0]
    with serving(tmp_path) as (url, about):
        about.wrong = OnlyOnce()
        refused = create(fleet, "--prompt", f"{url}/p", "--hash-on-nodes", "3")
        assert (1, "") == (refused.code, refused.out)
        assert "the nodes do not agree what it is" in refused.err
        assert before == newest(fleet)[0]

        made = create(fleet, "--prompt", f"{url}/p", "--hash-on-nodes", "3")
        assert 0 == made.code, made
    root = weights.scan(prompt, kind="plain").root
    assert root == newest(fleet, Component.PROMPT)[1].root


def test_what_is_pushed_is_rolled_out_from_there(fleet: Fleet):
    """A folder of this machine becomes a place that nodes read."""
    folder = fleet.folder / "pushed"
    adapter = fleet.new_adapter("pushed", 23)
    said = fleet.vctl("rollout", "start", "--adapter", str(adapter), "--push", str(folder))
    assert 0 == said.code, said
    assert "converged (3/3)" in said.out

    _, made = newest(fleet)
    copy = next(folder.iterdir())
    assert copy.as_uri() == made.source
    assert weights.scan(copy).root == made.root
