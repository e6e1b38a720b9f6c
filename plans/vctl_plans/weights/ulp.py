"""Compare two sets of weights as numbers: how many ULPs apart, tensor by tensor.

    compare(a, b, tolerance=...) -> Comparison

For copies that can't be equal byte by byte: another dtype, or made on other hardware. The measure
is in `ulp_formats` and docs/ulp-tolerances.md, the limits in `ulp_tolerance`. In short: both sides
become F32, exactly; classes are compared first (NaN is NaN whatever its payload, infinity has a
sign, -0 is +0), then the distance is taken in ULPs of the coarser format at that magnitude. What
has no ULPs (integers, booleans, F4, F6, E8M0, F64, complex) is compared byte by byte.

numpy is needed, and imported when `compare` is called: not with this module.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from vctl_plans.errors import PlanError, SettingsError

from .safetensors import MAX_HEADER_BYTES
from .ulp_formats import FORMATS, meet
from .ulp_sides import Placed, Side, open_side
from .ulp_tolerance import Tolerance

if TYPE_CHECKING:
    from .ulp_blocks import Measured
    from .ulp_run import Matched

Progress = Callable[[int, int], None]
Status = Literal["equal", "within", "beyond", "mismatch", "missing", "extra"]

EXACT: Final = "exact"


class TensorComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor. Numbers are null where nothing was measured."""

    name: str
    # equal: the same bytes; within, beyond: by the limit; mismatch: of another shape, class of
    # value or kind of dtype, or unequal without ULPs; missing from B; extra in B.
    status: Status
    reason: str  # one sentence, for mismatch, missing, extra and beyond
    a_dtype: str  # empty: not there
    b_dtype: str
    a_shape: tuple[int, ...] | None
    b_shape: tuple[int, ...] | None
    unit: str  # the format whose ULPs are counted, "exact", or "" where nothing was compared
    limit_ulp: float | None
    elements: int
    differing: int  # not equal as numbers; of F4 and F6: bytes
    max_ulp: float | None
    mean_ulp: float | None  # over all elements but class changes
    worst_at: tuple[int, ...] | None  # coordinates of the largest distance
    worst: tuple[float, float] | None  # the two values there
    beyond: int  # elements over the limit
    first_beyond_at: tuple[int, ...] | None
    class_changes: int  # finite, +inf, -inf or NaN on one side only
    first_class_change_at: tuple[int, ...] | None
    nan_payload_changes: int  # NaN on both sides, other bits; never a mismatch


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All tensors of two sets of weights, by name."""

    v: int = 1  # of this schema
    a: str
    b: str
    tolerance: str
    limits_ulp: Mapping[str, float]  # by unit
    is_within: bool  # every tensor is equal or within
    tensors: tuple[TensorComparison, ...]


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    tolerance: Tolerance,
    tensors: Sequence[str] = (),
    threads: int | None = None,
    max_header_bytes: int = MAX_HEADER_BYTES,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two files or directories of safetensors; nothing is written.

    How the tensors are spread over files does not matter. Memory does not grow with the weights:
    about 10 MB a thread.

    Args:
        a: The first side.
        b: The second side.
        tolerance: The largest distances that are accepted.
        tensors: The names to compare; all when empty.
        threads: As many as there are cores for this process, but at most 16, unless given.
        max_header_bytes: The longest safetensors header accepted, up to 100 MB.
        progress: Called with (bytes read from both sides, bytes in all), as `scan` calls it.

    Raises:
        PlanError: A name that neither side has.
        SettingsError: numpy is not installed.
        ArtifactError: As `scan` does.
    """
    check_numpy()
    with ExitStack() as stack:
        sides = (
            stack.enter_context(open_side(a, max_header_bytes=max_header_bytes)),
            stack.enter_context(open_side(b, max_header_bytes=max_header_bytes)),
        )
        names = _names(sides, tensors)
        compared = _compared(sides, names, tolerance, threads=threads, progress=progress)
    return Comparison(
        a=str(a),
        b=str(b),
        tolerance=tolerance.name,
        limits_ulp=dict(tolerance.limits),
        is_within=all(tensor.status in {"equal", "within"} for tensor in compared),
        tensors=compared,
    )


def _compared(
    sides: tuple[Side, Side],
    names: Iterable[str],
    tolerance: Tolerance,
    *,
    threads: int | None,
    progress: Progress | None,
) -> tuple[TensorComparison, ...]:
    from .ulp_run import measure_all  # noqa: PLC0415  imports numpy

    matched = {
        name: found for name in names if (found := _matched(sides, name, tolerance)) is not None
    }
    size = sum(found.size for found in matched.values())
    if progress:
        progress(0, size)
    report = (lambda done: progress(done, size)) if progress else None
    results = measure_all(sides, list(matched.values()), threads=threads, progress=report)
    for side in sides:
        side.check_unchanged()
    measured = dict(zip(matched, results, strict=True))
    return tuple(
        _judged(name, matched[name], measured[name], tolerance)
        if name in matched
        else _unmatched(name, sides)
        for name in sorted(names)
    )


def check_numpy() -> None:
    """Require numpy.

    Raises:
        SettingsError: It is not installed; the hint says how to.
    """
    try:
        import numpy  # noqa: F401, ICN001, PLC0415  whether it is there is the question
    except ImportError as cause:
        hint = "pip install 'vctl-rollout[compare]'"
        raise SettingsError(["comparing weights as numbers needs numpy"], hint=hint) from cause


def _names(sides: tuple[Side, Side], wanted: Sequence[str]) -> list[str]:
    """List what to compare in the order in which the first side has it."""
    a, b = sides
    both = dict.fromkeys((*a.tensors, *b.tensors))
    absent = [name for name in wanted if name not in both]
    if absent:
        raise PlanError(f"neither side has a tensor {absent[0]!r}")
    return [name for name in both if not wanted or name in set(wanted)]


def _matched(sides: tuple[Side, Side], name: str, tolerance: Tolerance) -> "Matched | None":
    """Pair a tensor with its other side; None where they can't be compared at all."""
    from .ulp_blocks import Meter  # noqa: PLC0415  imports numpy
    from .ulp_run import Matched  # noqa: PLC0415  imports numpy

    a, b = (side.tensors.get(name) for side in sides)
    if a is None or b is None or _mismatch(a, b):
        return None
    a_dtype, b_dtype = a.tensor.dtype, b.tensor.dtype
    limit = tolerance.limits.get(_unit(a_dtype, b_dtype), 0.0)
    return Matched(a, b, prod(a.tensor.shape), Meter(a_dtype, b_dtype, limit))


def _mismatch(a: Placed, b: Placed) -> str:
    """Say why two tensors have no elements to compare; empty when they do."""
    if a.tensor.shape != b.tensor.shape:
        return f"shape {list(a.tensor.shape)} against {list(b.tensor.shape)}"
    a_dtype, b_dtype = a.tensor.dtype, b.tensor.dtype
    if a_dtype != b_dtype and not {a_dtype, b_dtype} <= FORMATS.keys():
        return f"dtype {a_dtype} against {b_dtype}: not measured in ULPs"
    return ""


def _unit(a_dtype: str, b_dtype: str) -> str:
    """Name the coarser of two dtypes."""
    if not {a_dtype, b_dtype} <= FORMATS.keys():
        return EXACT
    return meet(FORMATS[a_dtype], FORMATS[b_dtype]).name


def _unmatched(name: str, sides: tuple[Side, Side]) -> TensorComparison:
    a, b = (side.tensors.get(name) for side in sides)
    status: Status = "mismatch" if a and b else "missing" if a else "extra"
    return TensorComparison(
        name=name,
        status=status,
        reason=_mismatch(a, b) if a and b else "not in B" if a else "not in A",
        a_dtype=a.tensor.dtype if a else "",
        b_dtype=b.tensor.dtype if b else "",
        a_shape=a.tensor.shape if a else None,
        b_shape=b.tensor.shape if b else None,
        unit="",
        limit_ulp=None,
        elements=0,
        differing=0,
        max_ulp=None,
        mean_ulp=None,
        worst_at=None,
        worst=None,
        beyond=0,
        first_beyond_at=None,
        class_changes=0,
        first_class_change_at=None,
        nan_payload_changes=0,
    )


def _judged(
    name: str, matched: "Matched", found: "Measured", tolerance: Tolerance
) -> TensorComparison:
    a, b = matched.a.tensor, matched.b.tensor
    unit = _unit(a.dtype, b.dtype)
    is_exact = unit == EXACT
    limit = None if is_exact else tolerance.limits[unit]
    status: Status = "within"
    if found.has_same_bytes and a.dtype == b.dtype:
        status = "equal"
    elif found.class_changes or (is_exact and found.differing):
        status = "mismatch"
    elif found.beyond:
        status = "beyond"
    scale = 2.0**-matched.meter.scale_bits
    alike = found.elements - found.class_changes
    return TensorComparison(
        name=name,
        status=status,
        reason=_reason(found, a.dtype, limit),
        a_dtype=a.dtype,
        b_dtype=b.dtype,
        a_shape=a.shape,
        b_shape=b.shape,
        unit=unit,
        limit_ulp=limit,
        elements=found.elements,
        differing=found.differing,
        max_ulp=None if is_exact else found.largest * scale,
        mean_ulp=None if is_exact else found.steps * scale / max(alike, 1),
        worst_at=_coordinates(found.largest_at, a.shape),
        worst=_values(found, a.dtype, b.dtype),
        beyond=0 if is_exact else found.beyond,
        first_beyond_at=_coordinates(found.first_beyond, a.shape),
        class_changes=found.class_changes,
        first_class_change_at=_coordinates(found.first_class_change, a.shape),
        nan_payload_changes=found.nan_payloads,
    )


def _reason(found: "Measured", dtype: str, limit: float | None) -> str:
    """Say in what two tensors are too far apart; empty when they are not."""
    of_all = f"of {found.elements} elements"
    if found.class_changes:
        return f"{found.class_changes} {of_all} are finite, infinite or NaN on one side only"
    if limit is None and found.differing:
        what = "bytes differ" if dtype.startswith(("F4", "F6")) else f"{of_all} differ"
        return f"{found.differing} {what}; {dtype} is compared exactly"
    if limit is not None and found.beyond:
        return f"{found.beyond} {of_all} are more than {limit:g} ULP apart"
    return ""


def _values(found: "Measured", a_dtype: str, b_dtype: str) -> tuple[float, float] | None:
    if found.largest_at < 0:
        return None
    a, b = found.largest_bits
    return FORMATS[a_dtype].value(a), FORMATS[b_dtype].value(b)


def _coordinates(place: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if place < 0:
        return None
    coordinates: list[int] = []
    for dim in reversed(shape):
        place, at = divmod(place, dim)
        coordinates.append(at)
    return tuple(reversed(coordinates))
