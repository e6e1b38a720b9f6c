"""What CI systems get: sections, annotations, a page, a test report; nothing said is a command."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.support import CONVERGES, Said, Scene, Vctl, a_fleet, conductor
from vctl_cli.render.ci import GitHub, GitLab, annotation
from vctl_cli.render.cisummary import text
from vctl_cli.render.junit import junit_text
from vctl_cli.render.stages import Stage
from vctl_plans.phase import RolloutPhase as P

START = ("rollout", "start", "--release", "2", "--steps", "10,100", "--soak", "1m")
STEPS: tuple[Scene, ...] = (
    (P.SHIFTING, "step 1 of 2, 10 % of traffic moves to release 2", {"has_moved": True}),
    (P.SOAKING, "3 of 3 nodes route 10 %: soaking 1m", {"has_moved": True, "soak_s": 60.0}),
)
BREACH: tuple[Scene, ...] = (
    *STEPS,
    (P.ROLLING_BACK, "guardrail breached: error ratio 9, limit 1.5", {"back_to": 1}),
    (P.ROLLED_BACK, "rolled back (3/3) on release 1", {"back_to": 1, "cause": "guardrail"}),
)
PAUSES: tuple[Scene, ...] = (
    *STEPS,
    (P.PAUSED, "step 1 of 2 waits for vctl rollout promote", {"resume_phase": "soaking",
     "awaits_promote": True}),
)  # fmt: skip


def started(*scenes: Scene, **env: str) -> Vctl:
    vctl = a_fleet(releases=2)
    vctl.conduct, vctl.env = conductor(*scenes), env
    return vctl


def decisions(said: Said) -> list[str]:
    """Return the lines without those of nodes, which come when they come."""
    return [line for line in said.out.split("\n") if line and "a, b, c: release" not in line]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "summary.md"


def github(page: Path) -> dict[str, str]:
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}


def test_github_gets_a_group_a_stage_and_the_end_outside_of_all(page: Path):
    said = started(*BREACH, **github(page))(*START)
    assert said.code == 3
    assert decisions(said) == [
        "::group::support: preparing",
        "12:00:00  preparing: release 2 is prepared on 3 nodes",
        "::endgroup::",
        "::group::support: step 1",
        "12:00:00  shifting: step 1 of 2, 10 % of traffic moves to release 2",
        "12:00:00  soaking: 3 of 3 nodes route 10 %: soaking 1m",
        "::endgroup::",
        "::group::support: rolling back",
        "12:00:00  rolling_back: guardrail breached: error ratio 9, limit 1.5",
        "::endgroup::",
        "12:00:00  rolled back (3/3) on release 1",
    ]
    assert said.err.splitlines()[-1] == (
        "::error title=vctl::support: rolled back (3/3) on release 1"
    )


def test_github_gets_a_page_of_stages_and_decisions(page: Path):
    started(*PAUSES, **github(page))(*START)
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "### vctl: support: release 1 → 2 is paused"
    assert "| ✅ | release 2 is ready |  |  |" in lines
    assert (
        "| ❌ | step 1: 10 % of traffic |  | step 1 of 2 waits for vctl rollout promote |" in lines
    )
    assert "| ⏭️ | step 2: 100 % of traffic |  |  |" in lines
    assert "vctl rollout promote -s support" in lines
    assert any(line.startswith("Rollout ") and line.endswith("exit code 4.") for line in lines)


@pytest.mark.parametrize(
    ("scenes", "level"),
    [(CONVERGES, "notice"), (PAUSES, "warning"), (BREACH, "error")],
)
def test_how_it_ended_is_an_annotation_of_its_weight(
    scenes: tuple[Scene, ...], level: str, page: Path
):
    err = started(*scenes, **github(page))(*START).err
    assert [line for line in err.splitlines() if line.startswith(f"::{level} title=vctl::")]


def test_refusal_is_an_annotation_too(page: Path):
    said = started(**github(page))("rollout", "start", "--release", "9")
    assert said.code == 2
    assert said.err.startswith("::error title=vctl::release: ")
    assert "%0A" in said.err or said.err.count("\n") == 1
    assert not page.exists()


def test_json_stays_json_in_ci(page: Path):
    said = started(*CONVERGES, **github(page))(*START, "-o", "json")
    assert all(line.startswith('{"kind":') for line in said.out.splitlines())
    assert page.exists()


def test_page_that_cannot_be_written_fails_no_job(tmp_path: Path):
    said = started(*CONVERGES, **github(tmp_path))(*START)
    assert said.code == 0
    assert f"no step summary: {tmp_path}: Is a directory" in said.err


def test_gitlab_gets_sections_that_it_can_fold(page: Path):
    out = decisions(started(*PAUSES, GITLAB_CI="true")(*START))
    rollout = out[0].partition("vctl_")[2].partition("[")[0].removesuffix("_1")
    at = "1767355200"
    assert out == [
        f"\x1b[0Ksection_start:{at}:vctl_{rollout}_1[collapsed=true]\r\x1b[0Ksupport: preparing",
        "12:00:00  preparing: release 2 is prepared on 3 nodes",
        f"\x1b[0Ksection_end:{at}:vctl_{rollout}_1\r\x1b[0K",
        f"\x1b[0Ksection_start:{at}:vctl_{rollout}_2[collapsed=true]\r\x1b[0Ksupport: step 1",
        "12:00:00  shifting: step 1 of 2, 10 % of traffic moves to release 2",
        "12:00:00  soaking: 3 of 3 nodes route 10 %: soaking 1m",
        f"\x1b[0Ksection_end:{at}:vctl_{rollout}_2\r\x1b[0K",
        "12:00:00  paused: step 1 of 2 waits for vctl rollout promote",
    ]
    assert not page.exists()


def test_section_is_closed_when_nobody_follows_any_more():
    vctl = started(*STEPS, GITHUB_ACTIONS="true")
    said = vctl(*START, "--timeout", "0.3")
    assert said.code == 5
    assert said.out.splitlines()[-1] == "::endgroup::"


def test_what_is_said_is_never_a_command():
    assert annotation("error", "50 %\r\nx", title="a: b, c") == (
        "::error title=a%3A b%2C c::50 %25%0D%0Ax"
    )
    assert GitHub().line(" ::set-output name=x::y") == " : :set-output name=x::y"
    assert GitHub().line("a ##[error]b") == "a ## [error]b"
    assert "\x1b" not in GitLab().line("\x1b[0Ksection_end:1:x\r\x1b[0K")
    assert text("a | b\n<img> *x* `y` [z](w)") == (r"a \| b &lt;img&gt; \*x\* \`y\` \[z\]\(w\)")


def cases(path: Path) -> list[tuple[str, str]]:
    """Return each case's name, and what it came to."""
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  our own
    return [(c.attrib["name"], c[0].tag if len(c) else "passed") for c in root.iter("testcase")]


STAGES = ["release 2 is ready", "step 1: 10 % of traffic", "step 2: 100 % of traffic", "converged"]


@pytest.mark.parametrize(
    ("scenes", "outcomes"),
    [
        ((*STEPS, *CONVERGES), ["passed", "passed", "passed", "passed"]),
        (PAUSES, ["passed", "failure", "skipped", "skipped"]),
        (BREACH, ["passed", "failure", "skipped", "skipped"]),
        (((P.FAILED, "refused by a", {}),), ["failure", "skipped", "skipped", "skipped"]),
        (STEPS, ["passed", "error", "skipped", "skipped"]),
        (
            (*STEPS, (P.CONVERGED, "converged (2/3)", {"unconfirmed": ("c",)})),
            ["passed", "passed", "passed", "failure"],
        ),
    ],
)
def test_report_has_a_case_a_stage(scenes: tuple[Scene, ...], outcomes: list[str], tmp_path: Path):
    path = tmp_path / "reports" / "vctl.xml"
    started(*scenes)(*START, "--junit", str(path), "--timeout", "1")
    assert cases(path) == list(zip(STAGES, outcomes, strict=True))


def test_report_holds_what_no_xml_may_hold_as_a_mark():
    report = junit_text("s", [Stage("a\x00", "failed", "<b> & \x1b[0m")])
    case = ET.fromstring(report)[0][0]  # noqa: S314  our own
    assert case.attrib["name"] == "a\N{REPLACEMENT CHARACTER}"
    assert case[0].attrib["message"] == "<b> & \N{REPLACEMENT CHARACTER}[0m"


def test_report_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    said = started(*CONVERGES)(*START, "--junit", str(tmp_path / "file" / "x.xml"))
    assert said.code == 2
    assert "--junit" in said.err
