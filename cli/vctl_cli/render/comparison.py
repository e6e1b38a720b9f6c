"""Two sets of weights compared as numbers, for people: what is not equal, the worst first."""

from collections import Counter
from collections.abc import Iterator, Sequence

from vctl_cli.render.table import table
from vctl_plans.weights.ulp import EXACT, Comparison, Status, TensorComparison
from vctl_plans.weights.ulp_tolerance import LIMITS

_HEAD = ("TENSOR", "DTYPE", "ELEMENTS", "DIFFER", "MAX ULP", "MEAN ULP", "STATUS")
_ORDER: Sequence[Status] = ("missing", "extra", "mismatch", "beyond", "within", "equal")


def comparison_text(view: Comparison) -> str:
    """Return the tensors that are not equal byte by byte, and one line that sums up."""
    told = [tensor for tensor in view.tensors if tensor.status != "equal"]
    told.sort(key=lambda found: (_ORDER.index(found.status), -(found.max_ulp or 0.0), found.name))
    shown = [f"A {view.a}", f"B {view.b}"]
    if told:
        shown.append(table(_HEAD, map(_row, told)))
    return "\n".join([*shown, _verdict(view)])


def missing_limits(view: Comparison) -> Iterator[str]:
    """Say which formats are beyond only because their kind of device has no limit for them."""
    kind = view.tolerance.partition(",")[0]
    if kind not in LIMITS:
        return
    for unit in sorted({found.unit for found in view.tensors if found.status == "beyond"}):
        if view.limits_ulp[unit] == LIMITS[kind][unit] == 0:
            yield f"{kind} has no limit for {unit}; set one: --tolerance {view.tolerance},{unit}=N"


def _row(found: TensorComparison) -> tuple[str, ...]:
    dtypes = dict.fromkeys(name for name in (found.a_dtype, found.b_dtype) if name)
    is_compared = bool(found.unit)
    return (
        found.name if found.name.isprintable() else ascii(found.name),
        " ".join(dtypes),
        str(found.elements) if is_compared else "-",
        str(found.differing) if is_compared else "-",
        _number(found.max_ulp),
        _number(found.mean_ulp),
        "; ".join(_status(found)),
    )


def _status(found: TensorComparison) -> Iterator[str]:
    yield f"{found.status}: {found.reason}" if found.reason else found.status
    if found.class_changes:
        yield f"first at {_place(found.first_class_change_at)}"
    if found.beyond and found.worst:
        a, b = found.worst
        yield f"worst at {_place(found.worst_at)}: {a:.9g} and {b:.9g}"
    if found.unit == EXACT and found.differing:
        yield f"first at {_place(found.first_beyond_at)}"
    if found.nan_payload_changes:
        yield f"{found.nan_payload_changes} NaNs have other payloads"


def _verdict(view: Comparison) -> str:
    counts = Counter(found.status for found in view.tensors)
    units = {found.unit for found in view.tensors if found.limit_ulp is not None}
    limits = ", ".join(f"{unit} {view.limits_ulp[unit]:g} ULP" for unit in sorted(units))
    word = "within" if view.is_within else "NOT within"
    named = f"{view.tolerance} ({limits})" if limits else view.tolerance
    parts = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
    noun = "tensor" if len(view.tensors) == 1 else "tensors"
    return f"{word} {named}: {len(view.tensors)} {noun}{': ' if parts else ''}{parts}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _place(at: tuple[int, ...] | None) -> str:
    return str(list(at or ()))
