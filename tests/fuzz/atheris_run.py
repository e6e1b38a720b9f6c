"""`make fuzz`: every target in turn, each in a process of its own, within one budget of time.

python -m tests.fuzz.atheris_run [SECONDS] [FOLDER]
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

SECONDS = 60
FOLDER = Path("build/fuzz")


def main() -> int:
    """Run all targets; 1 when one of them found a bug, 0 where there is no atheris."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER
    if importlib.util.find_spec("atheris") is None:
        said = f"no atheris for Python {sys.version_info.major}.{sys.version_info.minor} here"
        sys.stdout.write(f"skipped: {said}; hypothesis fuzzes the same readers in `make test`\n")
        return 0
    each = max(1, seconds // len(TARGETS))
    failed = [name for name in TARGETS if not _holds(name, folder, each)]
    found = f"bugs in {', '.join(failed)}: see {folder / 'crashes'}" if failed else "no bug found"
    sys.stdout.write(f"{len(TARGETS)} targets, {each} s each: {found}\n")
    return 1 if failed else 0


def _holds(name: str, folder: Path, seconds: int) -> bool:
    sys.stdout.write(f"fuzzing {name} for {seconds} s ...\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "tests.fuzz.atheris_weights", name, str(folder), str(seconds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    kept = [line for line in done.stderr.splitlines() if line.startswith("stat::")]
    shown = done.stderr if done.returncode else "\n".join(kept[:2]) + "\n"
    sys.stdout.write(shown)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
