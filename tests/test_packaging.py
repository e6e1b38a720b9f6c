"""What is shipped: the wheel's contents, and what importing a room may bring along."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"vctl_cli", "vctl_agent", "vctl_plans"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_wheel_holds_the_three_packages_and_no_other(wheel: zipfile.ZipFile) -> None:
    """A user who installs vctl gets its three packages, and neither tests nor rooms."""
    tops = {name.split("/")[0] for name in wheel.namelist()}
    packages = {top for top in tops if not top.endswith((".dist-info", ".data"))}

    assert packages == PACKAGES


def test_wheel_marks_each_package_as_typed(wheel: zipfile.ZipFile) -> None:
    """Type checkers see vctl's annotations."""
    assert {f"{name}/py.typed" for name in PACKAGES} <= set(wheel.namelist())


def _imported(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after *code*."""
    shown = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import vctl_cli", {"torch", "grpc", "rich.table", "httpx"}),
        ("import vctl_cli.app", {"torch", "grpc", "rich.table", "httpx"}),
        (
            "import vctl_cli.commands.status, vctl_plans.store.gateway, vctl_cli.render.document",
            {"asyncio", "grpc", "vctl_plans.operate", "vctl_plans.drift", "vctl_plans.diagnosis"},
        ),
        ("import vctl_plans.weights", {"torch", "grpc", "safetensors", "asyncio"}),
        ("import vctl_plans.store.gateway", {"grpc", "etcd3", "httpx"}),
        ("import vctl_agent.daemon", {"torch", "grpc", "vctl_cli"}),
        ("import vctl_agent.gateway.program", {"torch", "vctl_cli"}),
    ],
)
def test_import_stays_light(code: str, forbidden: set[str]) -> None:
    """Commands start at once and agents stay small, since nothing heavy is imported on the way."""
    assert _imported(code) & forbidden == set()


def test_help_imports_neither_grpc_nor_torch_nor_httpx() -> None:
    """`vctl --help` is instant."""
    command = [sys.executable, "-X", "importtime", "-m", "vctl_cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}

    assert loaded & {"grpc", "torch", "httpx", "etcd3"} == set()
