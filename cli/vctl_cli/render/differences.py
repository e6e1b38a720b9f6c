"""What differs between two versions of an artifact: a line for people, a record for programs."""

from typing import Literal

import msgspec

from vctl_plans import weights
from vctl_plans.units import bytes_text

Kind = Literal["root", "missing", "extra", "dtype", "shape", "content", "header", "layout"]


class DifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs."""

    kind: Kind  # root: another root, and no manifest to tell more
    path: str  # the file
    tensor: str  # empty: the file
    blocks: tuple[int, ...]  # of 1 MiB, counted from the first byte of the tensor or file
    ranges: tuple[tuple[int, int], ...]  # bytes [begin, end) of the file
    move_bytes: int  # what has to be moved to make the second from the first
    hint: str  # what it looks like
    text: str  # the same for people


def difference_view(found: weights.Difference) -> DifferenceView:
    """Return the record of a difference."""
    return DifferenceView(
        kind=found.what,
        path=found.path,
        tensor=found.tensor,
        blocks=found.blocks,
        ranges=found.ranges,
        move_bytes=found.move_bytes,
        hint=found.hint,
        text=str(found),
    )


def other_root(expected: str) -> DifferenceView:
    """Return the record of a root that is another one, where nothing else is known."""
    text = f"its root is not {expected}"
    return DifferenceView(
        kind="root", path="", tensor="", blocks=(), ranges=(), move_bytes=0, hint="", text=text
    )


class SideView(msgspec.Struct, frozen=True, kw_only=True):
    """One of two versions."""

    path: str
    manifest: str  # what was read; empty: the files were hashed
    root: str
    content_root: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tensor's numbers changed."""

    tensor: str
    largest_relative: float  # |b-a| / max(|a|,|b|), from 0 to 2, of what is finite on both sides
    is_broken: bool  # a number became NaN or infinite, or was


class DiffView(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions."""

    a: SideView
    b: SideView
    is_equal: bool
    differing_tensors: int
    tensors: int  # of B
    move_bytes: int  # to make B from A
    size_bytes: int  # of B
    differences: tuple[DifferenceView, ...]
    changes: tuple[Changed, ...]  # of tensors whose numbers were at hand


def diff_text(view: DiffView) -> str:
    """Return two versions' differences as lines; the last one is the verdict."""
    changes = {change.tensor: _change_text(change) for change in view.changes}
    lines = [
        *(
            f"{name}  {one.root}  {one.manifest or 'hashed'}"
            for name, one in (("A", view.a), ("B", view.b))
        ),
        *(one.text + changes.get(one.tensor, "") for one in view.differences),
    ]
    moved = f"{bytes_text(view.move_bytes)} of {bytes_text(view.size_bytes)} to move"
    tensors = f"{view.differing_tensors} of {view.tensors} tensors differ"
    return "\n".join([*lines, "equal" if view.is_equal else f"{tensors}, {moved}"])


def _change_text(change: Changed) -> str:
    broken = ", and some became NaN or infinite, or were" if change.is_broken else ""
    return f"; largest relative change {change.largest_relative:.3g}{broken}"
