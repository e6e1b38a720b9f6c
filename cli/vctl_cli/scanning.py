"""How weights are read here: what all commands that hash take, and what lies with the files."""

from pathlib import Path
from typing import NamedTuple, get_args

from vctl_cli.render.progress import hashing
from vctl_cli.render.screen import Screen
from vctl_plans import weights
from vctl_plans.errors import PlanError
from vctl_plans.names import suggestion
from vctl_plans.release import APPLICATION
from vctl_plans.units import bytes_of


class Scanning(NamedTuple):
    """How to read."""

    screen: Screen
    threads: int | None = None
    max_header_bytes: int = weights.MAX_HEADER_BYTES
    is_direct: bool = False
    kind: weights.Kind | None = None  # told from the files

    def scan(self, path: Path, *, verified: weights.Verified | None = None) -> weights.Manifest:
        """Hash what is at *path*, with progress where it takes long."""
        with hashing(self.screen, path.name) as progress:
            return weights.scan(
                path,
                kind=self.kind,
                threads=self.threads,
                max_header_bytes=self.max_header_bytes,
                direct=self.is_direct,
                verified=verified,
                note=self.screen.say,
                progress=progress,
            )


def header_bytes(text: str) -> int:
    """Return the bytes of `--max-header`.

    Raises:
        PlanError: No size, or more than the format knows.
    """
    if not text:
        return weights.MAX_HEADER_BYTES
    try:
        size = bytes_of(text)
    except ValueError as cause:
        raise PlanError(str(cause), path="--max-header") from cause
    if not 0 < size <= weights.FORMAT_MAX_HEADER_BYTES:
        raise PlanError("the format's headers end at 100 MB (100000000)", path="--max-header")
    return size


def kind_of(text: str) -> weights.Kind | None:
    """Return the kind that `--kind` names; None when it was not given.

    Raises:
        PlanError: There is no such kind.
    """
    if not text:
        return None
    kinds: dict[str, weights.Kind] = {kind: kind for kind in get_args(weights.Kind)}
    kinds |= {name.value: weights.KIND_OF[name] for name in APPLICATION}
    if text not in kinds:
        raise PlanError(f"no such kind: {text!r}", path="--kind", hint=suggestion(text, kinds))
    return kinds[text]


def require(*paths: Path | None) -> None:
    """Require that there is something at each path that was given.

    Raises:
        PlanError: There is not.
    """
    for path in paths:
        if path is not None and not path.exists():
            raise PlanError(f"there is no {path}", hint=f"looked for from {Path.cwd()}")


def manifest_beside(path: Path) -> Path | None:
    """Return the place of the manifest that lies with *path*; None when none does."""
    place = weights.manifest_path(path)
    return place if place.is_file() else None
