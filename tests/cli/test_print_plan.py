"""`rollout start --print-plan`: the file that the flags mean, which means the same again."""

from pathlib import Path

import pytest

from tests.builders import SERVICE, a_root, a_route
from tests.cli.support import Vctl, a_fleet
from vctl_plans.snapshot import Service

ROOT = a_root(9)

FLAGS: list[tuple[str, ...]] = [
    ("--adapter", "/a/v9", "--root", ROOT),
    ("--release", "1", "--soak", "90s", "--reason", "why: because"),
    ("--adapter", "/a/v9", "--root", ROOT, "--prompt", "/p", "--prompt-root", a_root(8)),
    ("--index", "s3://b/i", "--index-root", a_root(7), "--steps", "5,50,100", "--soak", "1h"),
    ("--release", "1", "--steps", "0.5,100"),
    ("--release", "1", "--strategy", "weighted"),
    ("--release", "1", "--user", "bo", "--user", "ann", "--group", "pilot", "--percent", "12.5"),
    ("--release", "1", "--header", "x-tier=${gold}", "--tenant", "acme"),
    ("--strategy", "rollback"),
    ("--strategy", "rollback", "--to", "1"),
    ("--adapter", "/a/v9", "--hash-on-nodes", "2"),
    ("--adapter", "/a/v9", "--root", ROOT, "--allow-downtime"),
]


def started(*words: str) -> Service:
    route = a_route(stable=2, good=(1, 2), instant=(1,))
    vctl = a_fleet(releases=2, route=route)
    said = vctl("rollout", "start", *words, "--no-watch")
    assert said.code == 0, said.err
    return vctl.service()


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_file_validates_and_is_printed_the_same_again(flags: tuple[str, ...], tmp_path: Path):
    printed = Vctl()("rollout", "start", *flags, "--print-plan")
    assert (0, "") == (printed.code, printed.err)
    plan = tmp_path / "plan.yaml"
    plan.write_text(printed.out)
    shown = Vctl()("rollout", "validate", str(plan), "--show")
    assert (0, printed.out) == (shown.code, shown.out), shown.err


@pytest.mark.parametrize(
    "flags", [each for each in FLAGS if "--hash-on-nodes" not in each], ids=" ".join
)
def test_rollout_of_the_file_is_that_of_the_flags(flags: tuple[str, ...], tmp_path: Path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(Vctl()("rollout", "start", *flags, "--print-plan").out)
    by_flags, by_file = started(*flags).rollout, started(str(plan)).rollout
    assert by_flags
    assert by_file
    assert SERVICE == by_file.service
    assert (by_flags.plan, by_flags.to_release, by_flags.groups, by_flags.reason) == (
        by_file.plan, by_file.to_release, by_file.groups, by_file.reason,
    )  # fmt: skip


def test_plan_that_does_not_validate_is_not_printed():
    said = Vctl()("rollout", "start", "--release", "1", "--steps", "50,10", "--print-plan")
    assert (2, "") == (said.code, said.out)
    assert "steps[1].weight: 10 is not above 50" in said.err
