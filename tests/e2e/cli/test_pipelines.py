"""What pipelines run: the fragments of docs/ci.md, the action's script, the template's jobs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cli.conftest import Shell
from tests.e2e.support import Said
from vctl_plans.phase import RolloutPhase as P

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.etcd,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("cli"),
]

ROOT = Path(__file__).parents[3]
ACTION = ROOT / "deploy" / "github-action"
TEMPLATE = ROOT / "deploy" / "gitlab" / "vctl.gitlab-ci.yml"


def fragments(kind: str) -> list[str]:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def canary(shell: Shell) -> Shell:
    """The plan of the page, of an adapter that does not serve yet."""
    plan = fragments("yaml")[0].replace("adapters/v2", shell.another())
    shell.write("canary.yaml", plan)
    return shell


def bring_a_prompt(shell: Shell, text: str) -> None:
    """Have the plan make a release of its own: what is taken back is revoked for good."""
    shell.write("prompt/system.txt", text)
    plan = (shell.folder / "canary.yaml").read_text()
    more = "release: {prompt: {source: ./prompt}, "
    shell.write("canary.yaml", plan.replace("release: {", more))


def test_canary_waits_and_a_later_job_promotes_it(canary: Shell) -> None:
    start, promote, _ = fragments("sh")
    said = canary(start)
    assert said.code == 0, said
    assert "the canary serves 10 %" in said.out
    assert (canary.folder / "vctl.xml").is_file()
    said = canary(promote)
    assert said.code == 0, said
    assert canary.fleet.rollout().phase is P.CONVERGED
    assert "checks of build 42 passed" in canary("vctl rollout history -o json").out


@pytest.mark.parametrize(
    ("verdict", "code", "phase"), [("exit 0", 0, P.CONVERGED), ("exit 1", 1, P.ROLLED_BACK)]
)
def test_check_of_ones_own_promotes_or_takes_back(
    canary: Shell, verdict: str, code: int, phase: P
) -> None:
    canary.write("check-canary.sh", f"#!/bin/sh\n{verdict}\n")
    (canary.folder / "check-canary.sh").chmod(0o755)
    # What was taken back is revoked: another release of the same bytes is made by its prompt.
    (canary.folder / "prompt").mkdir(exist_ok=True)
    canary.write("prompt/system.txt", f"{verdict} of {canary.folder}")
    plan = (canary.folder / "canary.yaml").read_text()
    canary.write(
        "canary.yaml", plan.replace("release: {", "release: {prompt: {source: ./prompt}, ")
    )
    said = canary(fragments("sh")[2])
    assert said.code == code, said
    assert canary.fleet.rollout().phase is phase


def test_retried_job_is_harmless(canary: Shell) -> None:
    plan = (canary.folder / "canary.yaml").read_text().replace("manual: true", "manual: false")
    canary.write("canary.yaml", plan)
    job = "vctl rollout start canary.yaml --reason 'build 43' --timeout 30m"
    first = canary.begin(job)
    canary.fleet.until(lambda: canary.fleet.rollout().reason == "build 43")
    again = canary(job)
    assert (0, 0) == (first.wait(30), again.code), again
    assert "already does this" in again.err or "nothing to do" in again.err
    rollout = canary.fleet.rollout().id
    third = canary(job)
    assert third.code == 0
    assert f"nothing to do: rollout {rollout} already converged (2/2)" in third.err
    assert rollout == canary.fleet.rollout().id
    first.communicate()


def action(shell: Shell, **env: str) -> Said:
    """Run the action's script as a runner does."""
    surroundings = {
        "PLAN": "canary.yaml",
        "REASON": "build 44",
        "TIMEOUT": "30s",
        "JUNIT": "action.xml",
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(shell.folder / "output"),
        "GITHUB_STEP_SUMMARY": str(shell.folder / "summary.md"),
    }
    for name in ("output", "summary.md", "action.xml"):
        (shell.folder / name).unlink(missing_ok=True)
    return shell(f"bash {ACTION / 'rollout.sh'}", env=surroundings | env)


def test_action_leaves_what_waits_for_a_person(canary: Shell) -> None:
    said = action(canary)
    assert said.code == 4, said
    assert (canary.folder / "output").read_text() == "exit-code=4\n"
    assert "is paused" in (canary.folder / "summary.md").read_text(encoding="utf-8")
    assert "::warning title=vctl::support: " in said.err
    assert "::group::support: step 1" in said.out
    assert 'failures="1"' in (canary.folder / "action.xml").read_text()


def test_action_promotes_where_it_is_told_to(canary: Shell) -> None:
    said = action(canary, ON_PAUSED="promote")
    assert said.code == 0, said
    assert 'failures="0"' in (canary.folder / "action.xml").read_text()
    assert canary.fleet.rollout().phase is P.CONVERGED


def test_action_gives_up_what_takes_too_long(canary: Shell) -> None:
    plan = (canary.folder / "canary.yaml").read_text().replace("soak: 1s", "soak: 10m")
    canary.write("canary.yaml", plan)
    said = action(canary, TIMEOUT="2s", ON_TIMEOUT="abort")
    assert said.code == 5, said
    assert canary.fleet.rollout().phase is P.ROLLED_BACK


def test_action_passes_its_inputs_to_the_script() -> None:
    told = yaml.safe_load((ACTION / "action.yml").read_text())
    (step,) = [step for step in told["runs"]["steps"] if step.get("id") == "rollout"]
    script = (ACTION / "rollout.sh").read_text()
    given = {
        match for value in step["env"].values() for match in re.findall(r"inputs\.(\S+)", value)
    }
    assert given == set(told["inputs"])
    for name in step["env"]:
        assert name.startswith("VCTL_") or f"{name}" in script


def jobs() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())
    return loaded


def test_template_s_jobs_roll_out_promote_and_go_back(canary: Shell) -> None:
    env = {
        "GITLAB_CI": "true",
        "VCTL_PLAN": "canary.yaml",
        "VCTL_TIMEOUT": "30s",
        "CI_COMMIT_TITLE": "Add v2",
        "GITLAB_USER_LOGIN": "ann",
    }
    bring_a_prompt(canary, "of the template")
    codes = {}
    for job in (".vctl-canary", ".vctl-promote", ".vctl-back"):
        script = "\n".join([*jobs()[".vctl"]["before_script"], *jobs()[job]["script"]])
        said = canary(f"set -e\n{script}", env=env)
        codes[job] = said.code
        assert "section_start:" in said.out, said
    assert codes == {".vctl-canary": 4, ".vctl-promote": 0, ".vctl-back": 0}
    assert "taken back by ann" in canary("vctl rollout history -o json").out
