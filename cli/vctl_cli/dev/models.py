"""A small base model and adapters for it, made by `vctl-engine` from seeds where they are missing.

Made beside their place and renamed: a run that was interrupted leaves nothing half made.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vctl_cli.programs import command_of
from vctl_plans.errors import VctlError

BASE_SEED = 7
RANK = 8


class Models:
    """The models of one development fleet.

    Args:
        folder: Where they are.
        env: The environment for `vctl-engine`.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.base = folder / "base"
        self.adapters = folder / "adapters"
        self._env = dict(env)

    def adapter(self, name: str) -> Path:
        """Return the directory of an adapter."""
        return self.adapters / name

    def make_base(self) -> None:
        """Make the base model, if it is not there."""
        if not self.base.is_dir():
            self._finish([self._begin(self.base, ["make-base", "--seed", str(BASE_SEED)])])

    def make_adapters(self, seeds: Mapping[str, int]) -> None:
        """Make the adapters that are not there, at once: each spends its time on imports."""
        missing = {name: seed for name, seed in seeds.items() if not self.adapter(name).is_dir()}
        self._finish(
            [
                self._begin(
                    self.adapter(name),
                    ["make-adapter", "--base", str(self.base), "--seed", str(seed)],
                    ["--rank", str(RANK)],
                )
                for name, seed in missing.items()
            ]
        )

    def _begin(self, place: Path, *arguments: Sequence[str]) -> "_Making":
        draft = place.with_name(f".{place.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        verb, *options = [part for group in arguments for part in group]
        process = subprocess.Popen(  # noqa: S603  our own program
            [command_of("vctl-engine"), verb, str(draft), *options],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return _Making(place, draft, process)

    def _finish(self, makings: "Sequence[_Making]") -> None:
        try:
            for making in makings:
                making.finish()
        finally:
            for making in makings:
                making.process.kill()
                making.process.wait()


class _Making:
    def __init__(self, place: Path, draft: Path, process: subprocess.Popen[str]) -> None:
        self.place = place
        self.draft = draft
        self.process = process

    def finish(self) -> None:
        """Wait for it and put what it made in its place."""
        said, _ = self.process.communicate()
        if self.process.returncode:
            raise VctlError(f"{self.place} could not be made: {said.strip()}")
        self.draft.rename(self.place)
