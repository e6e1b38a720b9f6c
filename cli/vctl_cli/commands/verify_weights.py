"""`vctl verify-weights`: the root of what lies at a path, and whether it is the right one."""

from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Direct, KindOption, MaxHeader, Root, Threads
from vctl_cli.render.document import show
from vctl_cli.render.verification import tensor_text, verification_text
from vctl_cli.scanning import Scanning, header_bytes, kind_of
from vctl_cli.session import session_of
from vctl_cli.verifying import expectation, verified_tensor, verified_whole


def verify_weights(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory, or one file.")],
    *,
    root: Root = "",
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The manifest. [default: the one with the files]"),
    ] = None,
    tensor: Annotated[
        str,
        typer.Option(metavar="NAME", help="Verify this tensor alone, by its proof of inclusion."),
    ] = "",
    b3sum: Annotated[
        bool, typer.Option("--b3sum", help="Print each file's digest as b3sum does: reads twice.")
    ] = False,
    since_verified: Annotated[
        bool,
        typer.Option(
            "--since-verified",
            help="Do not read files whose device, inode, size and times are those of when this"
            " option verified them; it says which.",
        ),
    ] = False,
    kind: KindOption = "",
    direct: Direct = False,
    threads: Threads = None,
    max_header: MaxHeader = "",
) -> ExitCode:
    """Hash weights and compare them with their root.

    The root covers every byte that is served. The manifest that lies with the files (see
    vctl-manifest) tells in which tensors, blocks and bytes a copy differs; --root says which root
    it must have. Where there is neither the root is printed, the format is checked, and nothing is
    compared. Exit status 0: equal, or nothing to compare with; 1: it differs or is malformed.
    """
    session = session_of(ctx)
    how = Scanning(session.screen, threads, header_bytes(max_header), direct, kind_of(kind))
    expected = expectation(path, root=root, manifest=manifest, tensor=tensor, screen=how.screen)
    if tensor:
        found = verified_tensor(path, tensor, expected, how, is_whole=b3sum or since_verified)
        show(session, found, kind="tensor-verification", table=lambda: tensor_text(found))
        return ExitCode.DONE if found.is_verified else ExitCode.FAILED
    state = session.world.state_path / "verified" if since_verified else None
    view = verified_whole(path, expected, how, state=state, has_sums=b3sum)
    show(session, view, kind="verification", table=lambda: verification_text(view))
    return ExitCode.FAILED if view.differences else ExitCode.DONE
