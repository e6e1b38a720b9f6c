"""Tenants at the command line: whose a service is, handing one over, looking at one's own."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from tests.builders import NODES, SERVICE, a_report, a_rollout, a_route
from tests.cli.support import KEYS, Terminal, Vctl, a_fleet, running
from vctl_cli.commands.status import status_view
from vctl_cli.reading import fleet_of, fleet_prefixes
from vctl_cli.render.fleetpicture import fleet_picture
from vctl_cli.render.picture import Frame
from vctl_cli.render.terminal import ASCII
from vctl_plans.groups import Group, Groups
from vctl_plans.node import NodeReport
from vctl_plans.phase import NodePhase
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.rollout import ServiceSpec
from vctl_plans.route import Mode, Override
from vctl_plans.snapshot import read_services

ACME = Groups(groups=(Group(name="ours", tenant="acme"), Group(name="blues", tenant="blue")))


def spec_of(vctl: Vctl, service: str = SERVICE) -> ServiceSpec:
    entries = asyncio.run(vctl.store.list(KEYS.services)).entries
    spec = read_services(KEYS, entries).services[service].spec
    assert spec is not None
    return spec


def two_tenants() -> Vctl:
    """Return a `vctl` on a fleet with `support` of acme and `chat` of nobody in particular."""
    vctl = a_fleet()
    vctl.put(KEYS.spec(SERVICE), ServiceSpec(service=SERVICE, tenant="acme"))
    vctl.put(KEYS.spec("chat"), ServiceSpec(service="chat"))
    vctl.put(KEYS.route("chat"), a_route(service="chat"))
    return vctl


def report(vctl: Vctl, node: str, **fields: object) -> NodeReport:
    """Have a node's report say more."""
    said = a_report(node, route_revision=99, r1=NodePhase.READY)
    said = msgspec.structs.replace(said, **fields)
    vctl.put(KEYS.report(node), said)
    return said


# -- whose a service is ------------------------------------------------------------------------


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    from tests.agent.support import make_adapter

    make_adapter(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.parametrize("command", ["start", "create"])
def test_new_service_is_the_tenants_that_is_given(command: str, adapter: Path):
    vctl = a_fleet()
    more = ("--new-service", "--tenant", "acme", "--adapter", str(adapter))
    said = (
        vctl("rollout", "start", "--service", "new", *more, "--no-watch")
        if command == "start"
        else vctl("release", "create", "new", *more)
    )
    assert said.code == 0, said
    assert "acme" == spec_of(vctl, "new").tenant


def test_new_direct_service_has_a_tenant_as_well(adapter: Path):
    vctl = a_fleet()
    said = vctl(
        *("rollout", "start", "--service", "new", "--new-service", "--tenant", "acme"),
        *("--direct", "--adapter", str(adapter), "--no-watch"),
    )
    assert said.code == 0, said
    spec = spec_of(vctl, "new")
    assert ("acme", Mode.DIRECT) == (spec.tenant, spec.mode)


def test_tenant_of_a_service_that_exists_must_be_the_one_that_it_has(adapter: Path):
    vctl = two_tenants()
    more = ("--new-service", "--adapter", str(adapter), "--no-watch", "--tenant")
    said = vctl("rollout", "start", *more, "blue")
    assert (2, "") == (said.code, said.out)
    assert "--tenant: support is of the tenant acme: that is set when it is made" in said.err
    assert "vctl service set support --tenant blue" in said.err
    assert vctl("rollout", "start", *more, "acme").code == 0


def test_name_that_no_tenant_can_have_is_refused(adapter: Path):
    more = ("--new-service", "--tenant", "A B", "--adapter", str(adapter))
    for said in (
        a_fleet()("rollout", "start", "--service", "new", *more),
        a_fleet()("release", "create", "new", *more),
        a_fleet()("service", "set", SERVICE, "--tenant", "A B"),
        a_fleet()("service", "import", "new", "--tenant", "A B"),
    ):
        assert (2, "") == (said.code, said.out)
        assert "'A B' is not a name" in said.err


def test_tenant_without_a_new_service_is_a_groups():
    said = a_fleet(releases=2)("rollout", "start", "--release", "2", "--tenant", "acme",
                               "--print-plan")  # fmt: skip
    assert "tenant: acme" in said.out


def test_service_is_handed_over_and_the_history_tells_of_it():
    vctl = a_fleet(releases=2, rollout=running())
    said = vctl("service", "set", SERVICE, "--tenant", "acme", "--reason", "their own now")
    told = "support is of the tenant acme from now on; before, of default\n"
    assert (0, told, "") == (said.code, said.out, said.err)
    assert "acme" == spec_of(vctl).tenant
    entries = asyncio.run(vctl.store.list(KEYS.history(SERVICE))).entries
    (entry,) = [msgspec.json.decode(each.value) for each in entries]
    assert told.startswith(entry["sentence"].partition(";")[0])
    assert ("their own now", "ann") == (entry["reason"], entry["by"]["user"])
    assert P.SHIFTING is vctl.service().rollout.phase  # type: ignore[union-attr]

    again = vctl("-o", "json", "service", "set", SERVICE, "--tenant", "acme")
    assert {"kind": "service", "service": SERVICE, "tenant": "acme", "before": "acme"} == (
        json.loads(again.out)
    )
    assert 1 == len(asyncio.run(vctl.store.list(KEYS.history(SERVICE))).entries)


def test_what_is_handed_over_keeps_what_a_newer_vctl_wrote():
    vctl = a_fleet()
    raw = b'{"v":1,"service":"support","later":"kept"}'
    asyncio.run(vctl.store.put(KEYS.spec(SERVICE), raw))
    assert vctl("service", "set", SERVICE, "--tenant", "acme").code == 0
    found = asyncio.run(vctl.store.get(KEYS.spec(SERVICE)))
    assert found is not None
    assert ("kept", "acme") == (
        msgspec.json.decode(found.value)["later"], msgspec.json.decode(found.value)["tenant"],
    )  # fmt: skip


def test_service_that_does_not_exist_cannot_be_handed_over():
    said = a_fleet()("service", "set", "supprt", "--tenant", "acme")
    assert (2, "") == (said.code, said.out)
    assert "did you mean 'support'?" in said.err


# -- looking at one's own ----------------------------------------------------------------------


def test_status_and_list_show_a_tenants_own_and_nothing_of_others():
    vctl = two_tenants()
    report(vctl, "a", routes={SERVICE: 99, "chat": 98})
    for arguments in (("status",), ("status", "--summary"), ("service", "list")):
        said = vctl(*arguments, "--tenant", "acme")
        assert said.code == 0, said
        assert (True, False) == (SERVICE in said.out, "chat" in said.out)
    view = json.loads(vctl("-o", "json", "status", "--tenant", "default").out)
    assert [("chat", "default")] == [(s["service"], s["tenant"]) for s in view["services"]]
    assert list(NODES) == [node["node"] for node in view["nodes"]]


def test_watched_status_shows_a_tenants_own():
    vctl = two_tenants()
    vctl.put(KEYS.rollout(SERVICE), a_rollout(P.CONVERGED))
    said = vctl("status", "--watch", "--tenant", "acme", "--service", SERVICE)
    assert (0, False) == (said.code, "chat" in said.out)
    assert vctl("status", "--watch", "--tenant", "acme", "--service", "chat").code == 2


def test_tenant_without_a_service_is_told_of_with_those_that_have_one():
    for arguments in (("status",), ("status", "--summary"), ("service", "list")):
        said = two_tenants()(*arguments, "--tenant", "acne")
        assert (2, "") == (said.code, said.out)
        assert "the tenant 'acne' has no service\n  did you mean 'acme'?" in said.err


# -- root's own word, and who holds on to what -------------------------------------------------


def test_break_glass_is_shown_in_red_on_a_terminal_and_in_json():
    vctl = a_fleet()
    report(vctl, "a", overrides={SERVICE: 7})
    report(vctl, "c", overrides={SERVICE: 7})
    warning = (
        "BREAK-GLASS: support is served by release 7 on a, c, whatever its route says,"
        " until: vctl-gateway override --service support --clear"
    )
    assert f"\n\n{warning}\n" in vctl("status").out
    vctl.out = Terminal()
    assert f"\n\n\x1b[31m{warning}\x1b[0m\n" in vctl("status").out
    vctl.env = {"NO_COLOR": "1"}
    assert f"\n\n{warning}\n" in vctl("status").out
    vctl.out = type(vctl.out)()
    view = json.loads(vctl("-o", "json", "status").out)
    assert {"a": 7, "c": 7} == view["services"][0]["glass"]
    assert [{SERVICE: 7}, {}, {SERVICE: 7}] == [node["overrides"] for node in view["nodes"]]


def test_break_glass_of_a_node_that_is_gone_is_not_shown():
    vctl = a_fleet(nodes=2)
    report(vctl, "c", overrides={SERVICE: 7})
    assert "BREAK-GLASS" not in vctl("status").out


def test_summary_of_a_large_fleet_tells_of_break_glass_and_of_sessions():
    vctl = a_fleet(releases=2, route=a_route(candidate=2, weight=10.0), rollout=running())
    report(vctl, "a", overrides={SERVICE: 7}, pins={SERVICE: {1: 5}})
    vctl.put(KEYS.summary, _summed(vctl))
    said = vctl("status", "--summary")
    assert "BREAK-GLASS: support is served by release 7 on a," in said.out
    assert "sessions seen: 5 on release 1\n" in said.out
    (line,) = json.loads(vctl("-o", "json", "status", "--summary").out)["services"]
    assert ({"a": 7}, {"1": {"least": 5, "most": 5}}) == (line["glass"], line["pins"])


def _summed(vctl: Vctl) -> msgspec.Struct:
    from tests.cli.test_status_summary import summed

    return asyncio.run(summed(vctl.store))


def test_sessions_are_told_while_something_moves_and_no_longer():
    vctl = a_fleet(releases=2, route=a_route(candidate=2, weight=10.0), rollout=running())
    report(vctl, "a", pins={SERVICE: {1: 120, 2: 30}})
    report(vctl, "b", pins={SERVICE: {1: 100}})
    told = "  sessions seen: 120 to 220 on release 1, 30 on release 2\n"
    assert told in vctl("status").out
    (line,) = json.loads(vctl("-o", "json", "status").out)["services"]
    assert {"1": {"least": 120, "most": 220}, "2": {"least": 30, "most": 30}} == line["pins"]
    vctl.put(KEYS.route(SERVICE), a_route(stable=2))
    assert "sessions seen" not in vctl("status").out


def test_live_picture_tells_of_both_and_break_glass_is_red():
    vctl = a_fleet(releases=2, route=a_route(candidate=2, weight=10.0), rollout=running())
    report(vctl, "a", overrides={SERVICE: 7}, pins={SERVICE: {1: 5}})
    entries = [asyncio.run(vctl.store.list(p)).entries for p in fleet_prefixes(KEYS)]
    view = status_view(KEYS, fleet_of(KEYS, entries))
    lines = fleet_picture(view, Frame(columns=100, lines=40, glyphs=ASCII))
    (glass,) = [line for line in lines if "BREAK-GLASS" in line.plain]
    assert "red" in str(glass.style)
    assert [line for line in lines if "sessions seen: 5 on release 1" in line.plain]


# -- explain -----------------------------------------------------------------------------------


def grouped(*asking: str) -> Vctl:
    """Return a `vctl` on a service of acme's with groups by tenant; these nodes ask for keys."""
    override = Override(group=ACME.digest, release=2)
    vctl = a_fleet(releases=2, route=a_route(overrides=(override,)))
    vctl.put(KEYS.spec(SERVICE), ServiceSpec(service=SERVICE, tenant="acme"))
    vctl.put(KEYS.groups(ACME.digest), ACME)
    for node in asking:
        report(vctl, node, checks_keys=True)
    return vctl


def test_explain_goes_by_the_header_where_nobody_is_asked_for_a_key():
    vctl = grouped()
    assert "group blues" in vctl("route", "explain", "--tenant", "blue").out
    assert "stable release" in vctl("route", "explain").out


def test_explain_goes_by_the_key_where_gateways_ask_for_one():
    vctl = grouped(*NODES)
    said = vctl("route", "explain", "--tenant", "blue")
    assert (1, "") == (said.code, said.err)
    assert said.out == (
        "refused with 404: support is of the tenant acme, whose API keys alone reach it\n"
    )
    for more in ((), ("--tenant", "acme"), ("--header", "x-vctl-tenant=blue")):
        assert "it is in the group ours" in vctl("route", "explain", *more).out


def test_explain_says_where_gateways_differ():
    vctl = grouped("a")
    report(vctl, "c", checks_keys=False)
    said = vctl("route", "explain", "--tenant", "blue")
    assert (0, True) == (said.code, "it is in the group blues" in said.out)
    assert said.out.endswith(
        "404 on a: support is of the tenant acme, whose API keys alone reach it\n"
    )
    report(vctl, "b", overrides={SERVICE: 7})
    view = json.loads(vctl("-o", "json", "route", "explain").out)
    (note,) = view["notes"]
    assert note.startswith("BREAK-GLASS: support is served by release 7 on b, whatever its route")
