"""Generated files are those of the commands, and render without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest

from vctl_cli.exitcodes import ExitCode
from vctl_cli.manpage import EXIT_CODES, files, main, stale

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").glob("*.1"))


def test_committed_files_are_up_to_date():
    assert stale(ROOT) == [], "run: python -m vctl_cli.manpage"


def test_check_names_what_is_stale_missing_or_too_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "man" / "vctl.1").write_text("old")
    (tmp_path / "man" / "vctl-status.1").unlink()
    (tmp_path / "completions" / "vctl.tcsh").write_text("")
    assert main(["--check"], tmp_path) == 1
    told = capsys.readouterr().err.splitlines()
    names = ["completions/vctl.tcsh", "man/vctl-status.1", "man/vctl.1"]
    assert [f"stale: {name}; run python -m vctl_cli.manpage" for name in names] == told
    assert main([], tmp_path) == 0
    assert stale(tmp_path) == []


def test_every_exit_code_is_explained():
    assert set(ExitCode) == set(EXIT_CODES)


def test_page_has_what_a_reader_looks_for():
    page = files()[Path("man/vctl-rollback.1")]
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT"):
        assert f".SH {heading}\n" in page
    assert "\\-\\-now" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize(
    "command",
    [["groff", "-man", "-ww", "-Tutf8", "-z"], ["mandoc", "-T", "lint"]],
    ids=lambda c: c[0],
)
def test_page_renders_without_a_warning(page: Path, command: list[str]):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    result = subprocess.run([*command, page], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
