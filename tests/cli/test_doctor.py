"""`vctl doctor`: what is wrong, where, and what mends it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import NODES, a_report
from tests.cli.support import FLEET, KEYS, Conduct, MemoryReader, Vctl, a_fleet, a_record
from vctl_cli import diagnosing
from vctl_cli.render.diagnosis import diagnosis_text
from vctl_cli.session import Session
from vctl_cli.world import World
from vctl_plans.capability import EngineFacts
from vctl_plans.codec import decode, encode
from vctl_plans.diagnosis import Severity
from vctl_plans.errors import Rejected, StoreError, StoreUnavailable
from vctl_plans.etcdhealth import EtcdMember
from vctl_plans.inspection import Reached, ReachRequest, Unreached
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.gateway import GatewayUnsuitable
from vctl_plans.store.memory import MemoryStore


def a_conducted_fleet(**changes: Any) -> Vctl:
    """Return a fleet with a conductor, on whose node b the report is changed."""
    vctl = a_fleet()
    vctl.put(KEYS.conductor, a_record("a"))
    if changes:
        vctl.put(KEYS.report("b"), msgspec.structs.replace(a_report("b"), **changes))
    return vctl


def test_fleet_that_is_well_is_said_so() -> None:
    """Each node in a line, with what is not known said as unknown."""
    said = a_conducted_fleet()("doctor")

    assert (0, "") == (said.code, said.err)
    lines = said.out.splitlines()
    assert lines[0].split("  ")[0] == "NODE"
    assert ["a", "ok", "torch", "?/?", "unknown", "unknown", "unknown"] == lines[1].split()
    assert "nothing is wrong: fleet test, 3 nodes, etcd 3.6.14" == lines[-1]


def test_error_is_named_with_its_remedy_and_fails() -> None:
    """Exit 1."""
    said = a_conducted_fleet(incarnation="", disk_used=0.95)("doctor")

    assert 1 == said.code
    assert "error   node b: its engine does not answer\n" in said.out
    assert "-> start it; see --engine-url of vctl-agent" in said.out
    assert said.out.splitlines()[-1].startswith("1 error, 1 warning: ")
    assert said.out.index("error ") < said.out.index("warning ")


def test_warnings_alone_do_not_fail() -> None:
    """Exit 0, and they are shown."""
    said = a_conducted_fleet(disk_used=0.95)("doctor")

    assert 0 == said.code
    assert "warning node b: 95% of the room for artifacts are used" in said.out


def test_what_holds_on_many_nodes_is_one_line() -> None:
    """With their names; and node by node in JSON."""
    vctl = a_conducted_fleet()
    for node in NODES:
        vctl.put(KEYS.report(node), msgspec.structs.replace(a_report(node), incarnation=""))
    said = vctl("doctor")
    assert "error   3 nodes, a, b, c: its engine does not answer" in said.out
    assert "3 errors: fleet test" in said.out

    view = json.loads(vctl("-o", "json", "doctor").out)
    assert ("diagnosis", "error") == (view["kind"], view["severity"])
    where = [f["where"] for f in view["findings"] if f["severity"] == "error"]
    assert ["node a", "node b", "node c"] == where
    assert {"unknown"} != {node["engine"] for node in view["nodes"]}


def test_fleet_of_nothing_says_what_to_start() -> None:
    """Rather than an empty table."""
    said = Vctl()("doctor")

    assert 1 == said.code
    assert "fleet: no node is present" in said.out


def test_vanished_node_is_shown_as_absent() -> None:
    """With its last word's key."""
    vctl = a_conducted_fleet()
    vctl.put(KEYS.report("gone"), a_report("gone"))
    said = vctl("doctor")

    assert "gone  absent" in said.out
    assert f"etcdctl del {KEYS.report('gone')}" in said.out


class Broken(MemoryReader):
    """A reader of which a member says no in some way."""

    def __init__(self, vctl: Vctl, problem: StoreError | None) -> None:
        super().__init__(vctl.store.peer())
        self._problem = problem

    def status(self, now: Callable[[], float]) -> EtcdMember:
        if self._problem:
            raise self._problem
        return super().status(now)


@pytest.mark.parametrize(
    ("problem", "severity", "text"),
    [
        (StoreUnavailable("refused"), Severity.WARNING, "does not answer: refused"),
        (Rejected("denied", code="PERMISSION_DENIED"), Severity.OK, "does not tell"),
        (GatewayUnsuitable("no JSON gateway"), Severity.OK, "does not tell"),
    ],
)
def test_member_that_does_not_tell_is_a_finding(
    problem: StoreError, severity: Severity, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member is asked by itself."""
    vctl = a_conducted_fleet()
    asked: list[Sequence[str]] = []
    real = diagnosing._member

    def member(session: Session, url: str) -> EtcdMember:
        def open_reader(settings: Any) -> MemoryReader:
            asked.append(settings.endpoints)
            return Broken(vctl, problem if url.endswith(":2") else None)

        world = replace(session.world, open_reader=open_reader)
        assert isinstance(world, World)
        return real(replace(session, world=world), url)

    monkeypatch.setattr(diagnosing, "_member", member)
    said = vctl("-o", "json", "doctor", "--endpoints", "http://h:1,http://h:2")

    assert [("http://h:1",), ("http://h:2",)] == asked
    (found,) = [f for f in json.loads(said.out)["findings"] if f["where"] == "etcd http://h:2"]
    assert severity == found["severity"]
    assert text in found["what"]


def test_of_many_nodes_only_those_are_shown_that_something_was_found_of() -> None:
    """The rest is counted."""
    names = [f"n{n:03d}" for n in range(60)]
    reports = {name: msgspec.structs.replace(a_report(name), adapters=1) for name in names}
    reports["n007"] = msgspec.structs.replace(reports["n007"], incarnation="")
    fleet = Fleet(records={name: a_record(name) for name in names}, reports=reports)
    view = diagnosing.diagnosis(fleet, KEYS, (), conductor=True)
    shown = diagnosis_text(view)

    assert FLEET == view.fleet
    assert "n007" in shown
    assert "n008" not in shown
    assert "and 59 more, of which nothing was found" in shown


def test_sample_of_the_page_is_what_is_shown() -> None:
    """As it stands there."""
    facts = EngineFacts(kind="vllm", version="0.32.0", max_adapters=4, max_resident=8)
    shown = msgspec.structs.replace(a_report("n1"), adapters=2, kv_used=0.31, disk_used=0.4)
    reports = {
        "n1": shown,
        "n2": msgspec.structs.replace(
            shown, node="n2", boot_id="boot-n2", adapters=8, kv_used=0.12, disk_used=0.8,
            exposed="0.0.0.0:8000",
        ),
    }  # fmt: skip
    records = {node: msgspec.structs.replace(a_record(node), facts=facts) for node in reports}
    etcd = (EtcdMember(endpoint="e", version="3.6.14", has_leader=True),)
    fleet = Fleet(records=records, reports=reports)
    view = diagnosing.diagnosis(fleet, Keys("prod"), etcd, conductor=True)

    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    sample = [line.removeprefix("    ") for line in page.splitlines() if line[:4] in {"", "    "}]
    text = "\n".join(sample)
    assert diagnosis_text(view) in text


def nodes_that_look(*nodes: str, lost: str = "") -> Conduct:
    """Return agents that answer what they can read; *lost* cannot read what serves."""

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.requests):
            for entry in update.entries.values():
                request = decode(entry.value, ReachRequest)
                for node in nodes:
                    await _answer(store, node, request.id)

    async def _answer(store: MemoryStore, node: str, request: str) -> None:
        gone = Unreached(service="support", number=1, problem="s3://b/v1: holds nothing")
        problems = (gone,) if node == lost else ()
        answer = Reached(request=request, asked=1, unreached=len(problems), problems=problems)
        report = msgspec.structs.replace(a_report(node), reached=(answer,))
        await store.put(KEYS.report(node), encode(report))

    return conduct


def test_nodes_are_asked_for_sources_only_when_that_is_wanted() -> None:
    """And the request goes with the command."""
    vctl = a_conducted_fleet()
    vctl.conduct = nodes_that_look(*NODES)
    assert "asking" not in vctl("doctor").err
    said = vctl("doctor", "--artifacts")
    assert (0, "asking 3 nodes: what can be read at its source?\n") == (said.code, said.err)
    assert () == asyncio.run(vctl.store.list(KEYS.requests)).entries


def test_source_that_a_node_cannot_read_is_found_and_so_is_silence() -> None:
    """Each with its remedy."""
    vctl = a_conducted_fleet()
    vctl.conduct = nodes_that_look("a", "b", lost="b")
    said = vctl("doctor", "--artifacts", "--timeout", "500ms")
    assert 1 == said.code
    assert (
        "error   node b: release 1 of support cannot be read at its source: s3://b/v1: holds"
        " nothing\n          -> put its bytes back" in said.out
    )
    assert "warning node c: it did not say in time" in said.out
