"""`vctl service list | import | eject`, and `--direct` of a new service."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from tests.cli.support import KEYS, Conduct, Vctl, a_fleet, a_record
from tests.weights import building
from vctl_plans import weights
from vctl_plans.capability import Capability, EngineFacts, Lack
from vctl_plans.codec import decode, encode
from vctl_plans.inspection import Hashed, HashRequest, Named, NameRequest, OperatorRequest
from vctl_plans.node import NodeRecord, NodeReport, Unmanaged
from vctl_plans.phase import Component
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import Entry
from vctl_plans.route import Mode
from vctl_plans.store.memory import MemoryStore

NEW = "chat"
ROOT = "b3:" + "7" * 64


def nodes_that_list(path: str, *nodes: str, name: str = NEW) -> Vctl:
    """Return a `vctl` on a fleet without services, whose engines list an adapter."""
    vctl = Vctl()
    for node in NODES:
        vctl.put(KEYS.node(node), a_record(node))
        vctl.put(KEYS.report(node), seen(node, path if node in nodes else "", name))
    return vctl


def seen(node: str, path: str, name: str = NEW) -> NodeReport:
    listed = (Unmanaged(name, path),) if path else ()
    return msgspec.structs.replace(a_report(node), unmanaged=listed)


def agents(
    *nodes: str, hashed: dict[str, Hashed] | None = None, named: dict[str, Named] | None = None
) -> Conduct:
    """Return agents that answer what they are asked; those that are not given do not."""

    async def conduct(store: MemoryStore) -> None:
        async for update in store.watch(KEYS.requests):
            for entry in update.entries.values():
                request: OperatorRequest = msgspec.json.decode(entry.value, type=OperatorRequest)
                for node in filter(request.is_for, nodes):
                    await answer(store, node, request)

    async def answer(store: MemoryStore, node: str, request: OperatorRequest) -> None:
        found = await store.get(KEYS.report(node))
        report = decode(found.value, NodeReport) if found else a_report(node)
        if isinstance(request, HashRequest):
            said = (hashed or {}).get(node, Hashed(request="", root=ROOT, size_bytes=9))
            told = msgspec.structs.replace(said, request=request.id)
            report = msgspec.structs.replace(report, hashed=(told,))
        elif isinstance(request, NameRequest):
            held = (named or {}).get(node, Named(request="", path="/state/x"))
            answered = msgspec.structs.replace(held, request=request.id)
            report = msgspec.structs.replace(report, named=(answered,))
        await store.put(KEYS.report(node), encode(report))

    return conduct


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    return building.adapter(tmp_path / "by-hand")


def service_of(vctl: Vctl, name: str = NEW):
    from vctl_plans.snapshot import read_services

    entries = asyncio.run(vctl.store.list(KEYS.services)).entries
    return read_services(KEYS, entries).services.get(name)


def run_import(vctl: Vctl, *more: str):
    return vctl("service", "import", NEW, "--no-watch", *more)


# -- import --------------------------------------------------------------------------------------


def test_import_makes_release_one_of_what_engines_serve(by_hand: Path):
    vctl = nodes_that_list(str(by_hand), *NODES)
    said = run_import(vctl)
    assert said.code == 0, said
    assert f"chat is served from {by_hand} by a, b, c" in said.err
    service = service_of(vctl)
    release = service.releases[1]
    assert weights.scan(by_hand).root == release.components[Component.ADAPTER].root
    assert by_hand.as_uri() == release.components[Component.ADAPTER].source
    assert ("", P.PREPARING, 1) == (
        release.unverified, service.rollout.phase, service.rollout.to_release,
    )  # fmt: skip
    assert ("imported", "ann") == (release.reason, service.spec.by.user)


def test_import_again_follows_the_rollout_that_runs(by_hand: Path):
    vctl = nodes_that_list(str(by_hand), *NODES)
    assert run_import(vctl).code == 0
    first = service_of(vctl).rollout
    again = run_import(vctl)
    assert (again.code, service_of(vctl).rollout) == (0, first)


def test_import_under_another_name(by_hand: Path):
    vctl = nodes_that_list(str(by_hand), "a", "c", name="chat-tuned")
    said = run_import(vctl, "--adapter", "chat-tuned")
    assert said.code == 0, said
    assert "and not by b, which will load it too" in said.err
    assert run_import(vctl, "--adapter", "chat-tunde").code == 2


def test_import_of_bytes_that_only_nodes_have():
    vctl = nodes_that_list("/on/nodes/chat", *NODES)
    vctl.conduct = agents(*NODES)
    said = run_import(vctl)
    assert said.code == 0, said
    adapter = service_of(vctl).releases[1].adapter
    assert (ROOT, "file:///on/nodes/chat", 9) == (adapter.root, adapter.source, adapter.size_bytes)
    assert "a, b hash it" in said.err


def test_import_of_bytes_that_differ_between_nodes_is_refused():
    vctl = nodes_that_list("/on/nodes/chat", *NODES)
    other = Hashed(request="", root="b3:" + "8" * 64)
    vctl.conduct = agents(*NODES, hashed={"b": other})
    said = run_import(vctl)
    assert said.code == 1
    assert "is not the same everywhere" in said.err
    assert service_of(vctl) is None


def test_import_of_what_nobody_can_read_is_said_to_be_unverified():
    vctl = nodes_that_list("/gone/chat", *NODES)
    gone = Hashed(request="", problem="is not there on this node")
    vctl.conduct = agents(*NODES, hashed={"a": gone, "b": gone})
    said = run_import(vctl)
    assert said.code == 0, said
    assert "adopted UNVERIFIED: nobody can read /gone/chat" in said.err
    release = service_of(vctl).releases[1]
    assert ("chat", "/gone/chat") == (release.adapter.adopted, release.adapter.source)
    shown = vctl("release", "show", "1", "--service", NEW)
    assert "note      adopted unverified: engines held chat before" in shown.out


def test_import_is_not_unverified_because_nobody_answers():
    vctl = nodes_that_list("/on/nodes/chat", *NODES)
    vctl.conduct = agents("a")
    said = run_import(vctl, "--timeout", "0.3s")
    assert said.code == 1
    assert "b did not answer within" in said.err
    assert service_of(vctl) is None


def test_import_of_what_nobody_can_read_needs_every_engine_to_hold_it():
    vctl = nodes_that_list("/gone/chat", "a")
    gone = Hashed(request="", problem="is not there on this node")
    vctl.conduct = agents(*NODES, hashed={"a": gone})
    said = run_import(vctl)
    assert said.code == 2
    assert "so b, c could not load it" in said.err
    named = run_import(vctl, "--path", "/elsewhere/chat")
    assert named.code == 1
    assert "cannot be read, neither here nor by nodes" in named.err


def test_import_takes_a_root_on_its_word_and_nodes_verify_it():
    vctl = nodes_that_list("/on/nodes/chat", *NODES)
    said = run_import(vctl, "--root", ROOT)
    assert said.code == 0, said
    assert ROOT == service_of(vctl).releases[1].adapter.root
    assert run_import(vctl, "--root", "b3:1").code == 2


def test_import_refuses_another_adapter_than_the_service_has(by_hand: Path):
    vctl = nodes_that_list(str(by_hand), *NODES, name=SERVICE)
    vctl.put(KEYS.release(SERVICE, 1), a_fleet().service().releases[1])
    said = vctl("service", "import", SERVICE, "--no-watch")
    assert said.code == 7
    assert "is a service of vctl's already" in said.err


# -- eject ---------------------------------------------------------------------------------------


def test_eject_lets_go_once_every_node_holds_it():
    vctl = a_fleet()
    vctl.conduct = agents(*NODES)
    route = vctl.service().route
    said = vctl("service", "eject", SERVICE, "--reason", "moving on")
    assert said.code == 0, said
    assert said.out.splitlines() == [
        "support: 3 engines hold release 1 by that name; vctl let it go",
        (
            "in etcd stay its releases, its history and what was revoked;"
            " to come back: vctl rollout start --service support --release 1"
        ),
    ]
    assert "a: holds support from /state/x" in said.err
    service = vctl.service()
    assert (None, route, [1]) == (service.route, service.spec.retired, list(service.releases))  # type: ignore[union-attr]
    history = asyncio.run(vctl.store.list(KEYS.history(SERVICE))).entries
    (entry,) = (decode(each.value, Entry) for each in history)
    assert ("moving on", "ann") == (entry.reason, entry.by.user)
    assert "2026-01-02" not in entry.at  # the writer's own clock
    assert entry.at
    assert "let go: engines were left with release 1" in vctl("status").out
    assert asyncio.run(vctl.store.list(KEYS.requests)).entries == ()


def test_eject_lets_nothing_go_while_a_node_does_not_confirm():
    vctl = a_fleet()
    taken = Named(request="", problem="the engine holds support from /by/hand")
    vctl.conduct = agents("a", "b", named={"b": taken})
    said = vctl("-o", "json", "--timeout", "0.5s", "service", "eject", SERVICE)
    assert said.code == 8
    view = json.loads(said.out)
    assert (["b", "c"], False, "") == (view["unconfirmed"], view["is_let_go"], view["way_back"])
    assert [("a", ""), ("b", taken.problem)] == [(n["node"], n["problem"]) for n in view["nodes"]]
    assert 1 == vctl.service().current_route.stable


def test_eject_can_be_prepared():
    vctl = a_fleet()
    vctl.conduct = agents(*NODES)
    said = vctl("service", "eject", SERVICE, "--prepare")
    assert (said.code, 1) == (0, vctl.service().current_route.stable)
    assert "move its clients to them, then: vctl service eject support" in said.out


def test_eject_is_refused_while_a_rollout_runs():
    vctl = a_fleet(releases=2, rollout=a_rollout(P.SOAKING, has_moved=True))
    said = vctl("service", "eject", SERVICE)
    assert (said.code, said.out) == (7, "")
    assert "is soaking" in said.err
    assert vctl("service", "eject", "nothing").code == 2


# -- list ----------------------------------------------------------------------------------------


def test_services_are_listed_with_how_they_are_served():
    vctl = a_fleet()
    vctl.put(KEYS.route("fast"), a_route(service="fast", mode=Mode.DIRECT))
    said = vctl("service", "list")
    assert said.code == 0
    assert said.out.splitlines() == [
        "SERVICE  TENANT   MODE     RELEASE  VECTOR     PHASE",
        (
            "fast     default  direct   1        -          -      direct mode: clients call the"
            " engines themselves"
        ),
        "support  default  gateway  1        adapter=1  -",
    ]
    view = json.loads(vctl("-o", "json", "service", "list").out)
    assert "services" == view["kind"]
    assert ["fast", "support"] == [line["service"] for line in view["services"]]
    assert "no service" in Vctl()("service", "list").out


# -- direct mode ---------------------------------------------------------------------------------


def test_new_service_may_be_direct(by_hand: Path):
    vctl = nodes_that_list("")
    said = vctl(
        *("rollout", "start", "--service", NEW, "--new-service", "--direct"),
        *("--adapter", str(by_hand), "--no-watch"),
    )
    assert said.code == 0, said
    assert (Mode.DIRECT, True) == (service_of(vctl).spec.mode, service_of(vctl).is_direct)
    weighted = vctl(
        *("rollout", "start", "--service", NEW, "--adapter", str(by_hand), "--steps", "10,100"),
        "--supersede",
    )
    assert weighted.code == 2
    assert "strategy: clients of chat call the engines themselves" in weighted.err


def test_direct_is_of_new_services_only(by_hand: Path):
    arguments = ("rollout", "start", "--adapter", str(by_hand), "--direct")
    vctl = a_fleet()
    assert "goes with --new-service" in vctl(*arguments).err
    said = vctl(*arguments, "--new-service")
    assert said.code == 2
    assert "support is served through gateways" in said.err


def test_engine_that_cannot_replace_is_refused_with_the_setting(by_hand: Path):
    vctl = nodes_that_list("")
    lacks = (Lack(capability=Capability.REPLACE, remedy="VLLM_SERVER_DEV_MODE=1"),)
    facts = EngineFacts(kind="vllm", lacks=lacks)
    record = NodeRecord(node="b", boot_id="boot-b", engine="vllm", facts=facts)
    vctl.put(KEYS.node("b"), record)
    said = vctl(
        *("rollout", "start", "--service", NEW, "--new-service", "--direct"),
        *("--adapter", str(by_hand)),
    )
    assert said.code == 2
    assert "while it runs on b (start its engine with VLLM_SERVER_DEV_MODE=1)" in said.err
    assert service_of(vctl) is None
