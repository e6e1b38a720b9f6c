"""A name is a part of a key and of a path, so the rule is narrow."""

import pytest

from vctl_plans.errors import PlanError
from vctl_plans.keys import Keys
from vctl_plans.names import check_name, check_root, engine_name, root_hex, suggestion


@pytest.mark.parametrize("name", ["a", "support", "node-1.rack_2", "0", "a" * 63])
def test_name_is_allowed(name: str) -> None:
    """Letters, digits, dots, dashes and underscores."""
    assert name == check_name(name, what="service")


@pytest.mark.parametrize("name", ["", "A", "a/b", "-a", "a-", "a" * 64, "ü", "a b", "..", "a\n"])
def test_name_that_could_leave_its_place_is_refused(name: str) -> None:
    """No slash, no space, no capital, nothing odd at the ends."""
    with pytest.raises(PlanError) as wrong:
        check_name(name, what="service")

    assert "service" == wrong.value.path


@pytest.mark.parametrize("root", ["", "b3:", "b3:" + "0" * 63, "b3:" + "G" * 64, "0" * 64])
def test_what_is_no_root_is_refused(root: str) -> None:
    """``b3:`` and 64 hexadecimal digits."""
    with pytest.raises(PlanError):
        check_root(root, what="root")


def test_root_names_directory_and_engine_adapter() -> None:
    """All 64 digits on disk, 12 of them in the engine."""
    root = check_root(f"b3:{10:064x}", what="root")

    assert f"{10:064x}" == root_hex(root)
    assert "support@" + "0" * 12 == engine_name("support", root)


def test_suggestion_is_the_closest_or_all_that_is_known() -> None:
    """Or nothing where nothing is known."""
    assert "did you mean 'soak'?" == suggestion("sok", ["soak", "steps"])
    assert "known: soak, steps" == suggestion("zzz", ["steps", "soak"])
    assert "" == suggestion("zzz", [])


def test_keys_are_where_the_design_says() -> None:
    """Under the prefix, the fleet, and what they are about; releases in the order of numbers."""
    keys = Keys("prod")

    assert "/vctl/v1/prod/services/support/releases/00000009" == keys.release("support", 9)
    assert keys.release("support", 9) < keys.release("support", 10)
    assert keys.rollout("support").startswith(keys.services)
    assert not keys.progress("support").startswith(keys.services)
    assert keys.decision("s", "r", 9) < keys.decision("s", "r", 10) < keys.archive("s", "r")


def test_fleet_of_keys_is_a_name() -> None:
    """A fleet can not reach into another's keys."""
    with pytest.raises(PlanError):
        Keys("a/b")
