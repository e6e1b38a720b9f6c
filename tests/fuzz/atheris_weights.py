"""Coverage-guided fuzzing of one reader with atheris (libFuzzer); run by `make fuzz`.

    python -m tests.fuzz.atheris_weights TARGET FOLDER SECONDS

FOLDER keeps what was found between runs: `corpus/TARGET`, and `crashes/TARGET-*` for bugs, each
an input to give to `tests.fuzz.targets.TARGETS[TARGET]`. The exit status is that of libFuzzer: not
0 when a reader raised what it may not.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

MOST_BYTES = 4096
MOST_S = 10  # for one input: more is a bug too
MOST_MB = 2048


def main() -> None:
    """Fuzz until the time is up or a bug is found; libFuzzer ends the process."""
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # Untyped on purpose: it is installed only where `make fuzz` put it.
    atheris: Any = importlib.import_module("atheris")
    # Nothing of vctl may have been imported before: it would not be instrumented.
    with atheris.instrument_imports(include=["vctl_plans.weights"]):
        targets = importlib.import_module("tests.fuzz.targets")
    corpus = _prepare(folder, name)

    def one_input(data: bytes) -> None:
        targets.TARGETS[name](data)  # libFuzzer reads what is returned

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={MOST_S}",
        f"-rss_limit_mb={MOST_MB}",
        f"-dict={folder / 'words.dict'}",
        f"-artifact_prefix={folder / 'crashes' / name}-",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one_input)
    atheris.Fuzz()


def _prepare(folder: Path, name: str) -> Path:
    from tests.fuzz.seeds import WORDS, seeds

    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    (folder / "crashes").mkdir(exist_ok=True)
    for number, content in enumerate(seeds()[name]):
        (corpus / f"seed-{number}").write_bytes(content)
    lines = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in WORDS)
    (folder / "words.dict").write_text("".join(f'"{line}"\n' for line in lines))
    return corpus


if __name__ == "__main__":
    main()
