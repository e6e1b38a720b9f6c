"""Users and roles: what each may, as commands of etcdctl."""

from vctl_plans.access import commands, roles
from vctl_plans.keys import Keys

KEYS = Keys("prod", "/team/x")


def test_there_is_a_user_for_each_kind_of_work_and_each_node():
    names = [role.name for role in roles(KEYS, ["a", "b"])]
    assert names == [
        "vctl-prod-reader",
        "vctl-prod-operator",
        "vctl-prod-conductor",
        "vctl-prod-node-a",
        "vctl-prod-node-b",
    ]


def test_a_node_writes_its_own_keys_and_no_key_that_begins_alike():
    node = roles(KEYS, ["a"])[-1]
    written = [grant for grant in node.grants if grant.verb != "read"]
    assert {grant.key for grant in written} == {
        "/team/x/prod/nodes/a",
        "/team/x/prod/reports/a",
        "/team/x/prod/statistics/a",
    }
    assert not any(grant.is_prefix for grant in written)  # else also node ab's


def test_commands_are_complete_and_in_order():
    role = roles(KEYS, ["a"])[0]
    assert commands(role, has_password=True) == [
        "etcdctl role add vctl-prod-reader",
        "etcdctl role grant-permission vctl-prod-reader --prefix=true read /team/x/prod/",
        "etcdctl user add vctl-prod-reader",
        "etcdctl user grant-role vctl-prod-reader vctl-prod-reader",
    ]
    assert commands(role, has_password=False)[2].endswith(" --no-password")
    from_file = commands(role, has_password=True, passwords="/a b/")[2]
    assert from_file.endswith(" --interactive=false < '/a b/vctl-prod-reader'")
