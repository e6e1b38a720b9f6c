"""What `vctl verify-weights` found, as views and as text."""

import msgspec

from vctl_cli.render.differences import DifferenceView
from vctl_cli.render.stages import Stage
from vctl_plans.units import bytes_text


class VerifyView(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at a path."""

    path: str
    artifact: str  # adapter, model or plain
    root: str
    content_root: str
    size_bytes: int
    files: int
    tensors: int
    expected: str  # the root that it was compared with; empty: with nothing
    manifest: str  # the manifest that it was compared with; empty: with none
    is_verified: bool
    differences: tuple[DifferenceView, ...]
    left_out: tuple[str, ...]
    not_read: tuple[str, ...]  # files that were unchanged since they were verified
    b3sum: dict[str, str]  # with --b3sum: the lines that it prints, by file


class TensorView(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor."""

    path: str
    file: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    digest: str
    expected: str  # the root that it must belong to
    manifest: str
    is_verified: bool
    differences: tuple[DifferenceView, ...]


def verification_text(view: VerifyView) -> str:
    """Return the whole as lines; the last one is the verdict."""
    size = f"{bytes_text(view.size_bytes)}, {view.files} files, {view.tensors} tensors"
    lines = [
        f"{view.path}: {view.artifact}, {size}",
        f"root      {view.root}",
        *([f"content   {view.content_root}"] if view.tensors else []),
        *(f"left out  {item}" for item in view.left_out),
        *(f"not read  {path}: unchanged since it was verified" for path in view.not_read),
        *view.b3sum.values(),
        *(f"differs   {difference.text}" for difference in view.differences),
    ]
    if not view.expected:
        lines.append("compared with nothing: no manifest lies with it, and no --root was given")
    return "\n".join(lines + _verdict(view))


def tensor_text(view: TensorView) -> str:
    """Return one tensor's verification as lines; the last one is the verdict."""
    what = f"{view.dtype} {list(view.shape)}, {bytes_text(view.size_bytes)}"
    lines = [
        f"{view.path}: {view.file}: tensor {view.tensor!r}, {what}",
        f"digest    {view.digest}",
        *(f"differs   {difference.text}" for difference in view.differences),
    ]
    return "\n".join(lines + _verdict(view))


def path_stages(view: VerifyView | TensorView) -> tuple[Stage, ...]:
    """Return a stage for each file that differs, and one for the whole."""
    by_file: dict[str, list[str]] = {}
    for difference in view.differences:
        by_file.setdefault(difference.path, []).append(difference.text)
    whole = view.expected or "nothing to compare with"
    files = tuple(Stage(path, "failed", "\n".join(said)) for path, said in by_file.items() if path)
    if view.differences:
        return (*files, Stage(f"is {whole}", "failed", f"{len(view.differences)} differences"))
    return (Stage(f"is {whole}" if view.expected else whole, "passed"),)


def _verdict(view: VerifyView | TensorView) -> list[str]:
    if not view.expected:
        return []
    verdict = "verified" if view.is_verified else "NOT what was expected"
    return [f"{verdict}: {view.expected}"]
