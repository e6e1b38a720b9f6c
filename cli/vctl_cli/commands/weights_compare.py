"""`vctl weights compare`: how far apart two sets of weights are, as numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import MaxHeader, Threads
from vctl_cli.render.comparison import comparison_text, missing_limits
from vctl_cli.render.document import show
from vctl_cli.render.progress import hashing
from vctl_cli.scanning import Scanning, header_bytes, require
from vctl_cli.session import session_of
from vctl_plans.weights import ulp_tolerance
from vctl_plans.weights.ulp import Comparison, compare

KINDS = "|".join(ulp_tolerance.LIMITS)


def weights_compare(
    ctx: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="A safetensors file, or a directory.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.")],
    *,
    ulp: Annotated[  # noqa: ARG001  there is no other measure yet
        bool, typer.Option("--ulp", show_default=False, help="Measure in ULPs: the default.")
    ] = True,
    tolerance: Annotated[
        str,
        typer.Option(
            metavar=f"{KINDS}|N[,FORMAT=N...]",
            help="The most that is accepted: a kind of device, or ULPs for every format. A kind"
            " sets F16 2.0, 1.5 and 2.5 and BF16 3.5, 2.0 and 4.0 (nvidia-gpu, google-tpu,"
            " ascend-npu), 8-bit floats 1; F32 must be equal unless a number is given, as in"
            " nvidia-gpu,F32=16.",
        ),
    ] = ulp_tolerance.DEFAULT_KIND,
    tensor: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this tensor; may be repeated.")
    ] = None,
    threads: Threads = None,
    max_header: MaxHeader = "",
) -> ExitCode:
    """Compare two sets of weights as numbers, in ULPs.

    Files, shards and directories, of any mix of F32, F16, BF16 and 8-bit floats: both sides become
    F32, exactly, and are measured in units in the last place of the coarser format. NaN is NaN
    whatever its payload, -0 is +0, infinity has a sign. All other dtypes must be equal. Tensors
    that only one side has, other shapes, and values that are finite on one side only are never
    within a tolerance. Exit status 0: all within; 1: not.
    """
    session = session_of(ctx)
    how = Scanning(session.screen, threads, header_bytes(max_header))
    view = compared(how, a, b, tolerance=tolerance, tensors=tensor or ())
    show(session, view, kind="comparison", table=lambda: comparison_text(view))
    for told in missing_limits(view):
        session.screen.say(told)
    return ExitCode.DONE if view.is_within else ExitCode.FAILED


def compared(
    how: Scanning, a: Path, b: Path, *, tolerance: str, tensors: Sequence[str]
) -> Comparison:
    """Compare what is at two paths.

    Raises:
        PlanError: There is nothing at a path, or no such tensor, or no such tolerance.
        SettingsError: numpy is not installed.
        ArtifactError: What is there can't be compared.
    """
    limits = ulp_tolerance.parse(tolerance, path="--tolerance")
    require(a, b)
    with hashing(how.screen, f"{a.name} and {b.name}", doing="comparing") as progress:
        return compare(
            a,
            b,
            tolerance=limits,
            tensors=tensors,
            threads=how.threads,
            max_header_bytes=how.max_header_bytes,
            progress=progress,
        )
