"""`vctl rollout show`: one rollout in full, the last or an earlier one, also as a page."""

import asyncio
import json
from pathlib import Path

from tests.builders import SERVICE, a_report
from tests.cli import published
from tests.cli.support import CONVERGES, KEYS, Vctl, a_fleet, conductor
from tests.weights import building
from vctl_plans.codec import encode
from vctl_plans.phase import NodePhase
from vctl_plans.store.port import Put, Txn


def rolled_out(tmp_path: Path, *, reason: str = "better") -> Vctl:
    """Return a fleet on which a rollout has converged."""
    vctl = a_fleet()
    vctl.conduct = conductor(*CONVERGES)
    adapter = building.adapter(tmp_path / "v2")
    said = vctl("rollout", "start", "--adapter", str(adapter), "--reason", reason)
    assert said.code == 0, said.err
    vctl.conduct = None
    return vctl


def test_last_rollout_is_shown_with_its_plan_and_decisions(tmp_path: Path):
    vctl = rolled_out(tmp_path)
    said = vctl("rollout", "show")
    rollout = vctl.service().rollout
    assert rollout is not None
    assert (0, "") == (said.code, said.err)
    assert said.out.startswith(f"rollout   {rollout.id} (full-switch)\n")
    assert f"service   {SERVICE}: 1 -> 2" in said.out
    assert "plan      ready 100%, at most 0 failed, 10% absent" in said.out
    assert "nodes     3: a, b, c" in said.out
    assert "release 2 is prepared on 3 nodes  [by ann@" in said.out
    assert ": better]" in said.out
    assert "converged  100 % on 1  converged (3/3) on release 2" in said.out


def test_record_is_published_json(tmp_path: Path):
    vctl = rolled_out(tmp_path)
    said = vctl("rollout", "show", "-o", "json")
    assert ["rollout-record"] == published.check(said.out)
    view = json.loads(said.out)
    assert 3 == len(view["decisions"])
    assert ["a", "b", "c"] == view["nodes"]
    assert {"stable": 1, "weight": 0.0} == view["decisions"][0]["entry"]["seen"]["traffic"]
    assert [1, 2] == [release["number"] for release in view["releases"]]


def test_earlier_rollout_is_found_by_the_beginning_of_its_id(tmp_path: Path):
    vctl = rolled_out(tmp_path)
    first = vctl.service().rollout
    assert first is not None
    again = vctl("rollout", "start", "--release", "1", "--no-watch", "--reason", "back")
    assert again.code == 0, again.err
    assert first.id != again.out.strip()
    shown = vctl("rollout", "show", first.id, "-o", "json")
    assert first.id == json.loads(shown.out)["rollout"]["id"]
    assert vctl("rollout", "show", first.id[:-2]).out.startswith(f"rollout   {first.id} ")
    common = first.id.rpartition("-")[0]
    said = vctl("rollout", "show", common)
    assert (2, "") == (said.code, said.out)
    assert f"id: '{common}' is the beginning of 2 rollouts" in said.err
    assert first.id in said.err


def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path):
    said = rolled_out(tmp_path)("rollout", "show", "20260102-120000-ffffff")
    assert (2, "") == (said.code, said.out)
    assert "support has no rollout '20260102-120000-ffffff'" in said.err
    assert "did you mean" in said.err
    said = a_fleet()("rollout", "show")
    assert (7, "") == (said.code, said.out)
    assert "service support never had a rollout" in said.err
    said = a_fleet()("rollout", "show", "-s", "suport")
    assert (2, "") == (said.code, said.out)
    assert "has no service 'suport'" in said.err
    assert "did you mean 'support'?" in said.err


def test_page_is_written(tmp_path: Path):
    vctl = rolled_out(tmp_path, reason="<script>alert(1)</script>")
    place = tmp_path / "page.html"
    said = vctl("rollout", "show", "--html", str(place))
    assert (0, "", f"written: {place}\n") == (said.code, said.out, said.err)
    text = place.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    said = vctl("rollout", "show", "--html", str(tmp_path / "no" / "page.html"))
    assert (2, "") == (said.code, said.out)
    assert "--html: " in said.err
    assert "cannot be written: No such file or directory" in said.err


def test_history_of_an_older_version_is_shown_without_what_it_did_not_keep(tmp_path: Path):
    vctl = rolled_out(tmp_path)
    for entry in asyncio.run(vctl.store.list(KEYS.histories)).entries:
        value = json.loads(entry.value)
        value.pop("seen", None)
        put = Put(entry.key, json.dumps(value).encode())
        asyncio.run(vctl.store.commit(Txn(operations=(put,))))
    said = vctl("rollout", "show")
    assert said.code == 0
    assert "converged  -        converged (3/3) on release 2" in said.out
    place = tmp_path / "page.html"
    assert 0 == vctl("rollout", "show", "--html", str(place)).code
    assert "Nothing to show: how traffic was split was not kept" in place.read_text()


def test_rollout_that_runs_lasts_until_now(tmp_path: Path):
    vctl = a_fleet()
    adapter = building.adapter(tmp_path / "v2")
    assert 0 == vctl("rollout", "start", "--adapter", str(adapter), "--no-watch").code
    put = Put(KEYS.report("a"), encode(a_report("a", r1=NodePhase.READY)))
    asyncio.run(vctl.store.commit(Txn(operations=(put,))))
    said = vctl("rollout", "show")
    assert "phase     preparing, 0s after it began" in said.out
    assert "nodes" in said.out
