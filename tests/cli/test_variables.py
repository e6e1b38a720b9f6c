"""Variables of plan files, from the command line to the plan that is read."""

from pathlib import Path

import pytest
import yaml

from tests.cli.support import Said, Vctl

PLAN = """\
service: support
strategy: weighted
release:
  adapter:
    source: ${place}/v2
steps:
  - weight: ${share}
    soak: ${soak}
  - {weight: 100, soak: "${soak}"}
reason: "${ticket}"
"""

GIVEN = ("--set", "place=/a", "--set", "share=5", "--set", "soak=2m", "--set", "ticket=4711")


def validate(tmp_path: Path, text: str, *more: str) -> Said:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return Vctl()("rollout", "validate", str(path), "--show", *more)


def test_values_are_filled_in_and_typed_as_they_stand(tmp_path: Path):
    said = validate(tmp_path, PLAN, *GIVEN)
    assert said.code == 0, said.err
    assert yaml.safe_load(said.out) == {
        "service": "support",
        "strategy": "weighted",
        "release": {"adapter": {"source": "file:///a/v2"}},
        "steps": [{"weight": 5, "soak": "2m"}, {"weight": 100, "soak": "2m"}],
        "reason": "4711",
    }


def test_value_never_makes_structure(tmp_path: Path):
    said = validate(tmp_path, PLAN, *GIVEN[:-1], "ticket=x\nretain: 0")
    assert yaml.safe_load(said.out)["reason"] == "x\nretain: 0"
    said = validate(tmp_path, PLAN, *GIVEN[2:], "--set", "place={a: b}")
    assert "retain" not in yaml.safe_load(said.out)


def test_unquoted_value_that_is_no_number_is_refused_where_one_must_be(tmp_path: Path):
    said = validate(tmp_path, PLAN, "--set", "share=five", *GIVEN[:2], *GIVEN[4:])
    assert (said.code, said.err) == (2, "vctl: steps[0].weight: must be a number, and is text\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            GIVEN[2:],
            (
                "plan.yaml: line 5: variable place is not given\n"
                "  give it: --set place=...; given: share, soak, ticket\n"
            ),
        ),
        ((*GIVEN, "--set", "shares=6"), "--set: shares: no ${shares} is in "),
        ((*GIVEN, "--set", "shares=6"), "  did you mean 'share'?\n"),
        ((*GIVEN, "--set", "share"), "--set: 'share' is no variable: write name=value\n"),
        ((*GIVEN, "--set", "share=6"), "--set: share is given twice\n"),
    ],
)
def test_names_that_do_not_meet_are_refused(tmp_path: Path, given: tuple[str, ...], told: str):
    said = validate(tmp_path, PLAN, *given)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_variable_that_is_none_is_refused_with_its_line(tmp_path: Path):
    for wrong in ("${a b}", "${}", "${open"):
        said = validate(tmp_path, f"service: support\nreason: {wrong}\n")
        assert said.code == 2
        assert f"line 2: {wrong} is no variable" in said.err
        assert "write ${name}; for the text ${ itself write $${" in said.err


def test_variable_between_braces_must_be_quoted_and_that_is_said(tmp_path: Path):
    said = validate(tmp_path, "release: {adapter: {source: ${place}}}\n", "--set", "place=x")
    assert said.code == 2
    assert 'between { } or [ ] a variable stands in quotes: "${name}"' in said.err


def test_names_of_fields_are_not_filled_in(tmp_path: Path):
    said = validate(tmp_path, PLAN + "${ticket}: 1\n", *GIVEN)
    assert said.code == 2
    assert "${ticket}: unknown field" in said.err


def test_printed_plan_says_the_same_when_it_is_read(tmp_path: Path):
    flags = ("--adapter", "/a/v2", "--steps", "5,100", "--soak", "2m", "--reason", "costs ${x}")
    printed = Vctl()("rollout", "start", *flags, "--print-plan")
    assert printed.code == 0, printed.err
    said = validate(tmp_path, printed.out)
    assert (0, printed.out) == (said.code, said.out)
    assert yaml.safe_load(printed.out)["reason"] == "costs $${x}"


def test_plan_of_flags_takes_no_variable():
    said = Vctl()("rollout", "start", "--adapter", "/a", "--set", "x=1", "--print-plan")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "vctl: --set: x: no ${x} is in a plan of flags\n  a plan of flags has no variables\n"
    )
