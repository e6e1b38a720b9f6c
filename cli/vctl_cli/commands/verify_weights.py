"""`vctl verify-weights`: the root of what lies at a path, and whether it is the right one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Direct, Junit, KindOption, MaxHeader, Root, Service, Threads
from vctl_cli.render.document import show
from vctl_cli.render.verification import (
    TensorView,
    VerifyView,
    path_stages,
    tensor_text,
    verification_text,
)
from vctl_cli.reporting import report_checks
from vctl_cli.scanning import Scanning, header_bytes, kind_of
from vctl_cli.session import Session, session_of
from vctl_cli.verifying import expectation, verified_tensor, verified_whole
from vctl_plans.errors import PlanError

if TYPE_CHECKING:
    from vctl_plans.store.port import Store


def verify_weights(
    ctx: typer.Context,
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="A directory, or one file.")
    ] = None,
    *,
    service: Service = "",
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
    junit: Junit = "",
) -> ExitCode:
    """Hash weights and compare them with their root.

    The root covers every byte that is served. The manifest that lies with the files (see
    vctl-manifest) tells in which tensors, blocks and bytes a copy differs; --root says which root
    it must have. Where there is neither the root is printed, the format is checked, and nothing is
    compared. Exit status 0: equal, or nothing to compare with; 1: it differs or is malformed.

    Without PATH, and with --fleet or --service, every node of the fleet hashes again what it serves
    from, and the answers are shown node by node.
    """
    session = session_of(ctx)
    if path is None:
        return verify_nodes(session, service, junit=junit)
    how = Scanning(session.screen, threads, header_bytes(max_header), direct, kind_of(kind))
    expected = expectation(path, root=root, manifest=manifest, tensor=tensor, screen=how.screen)
    if tensor:
        found = verified_tensor(path, tensor, expected, how, is_whole=b3sum or since_verified)
        show(session, found, kind="tensor-verification", table=lambda: tensor_text(found))
        return report_path(session, found, junit=junit)
    state = session.world.state_path / "verified" if since_verified else None
    view = verified_whole(path, expected, how, state=state, has_sums=b3sum)
    show(session, view, kind="verification", table=lambda: verification_text(view))
    return report_path(session, view, junit=junit)


def report_path(session: Session, view: VerifyView | TensorView, *, junit: str) -> ExitCode:
    """Return how a verification ended, having reported it."""
    code = ExitCode.FAILED if view.differences else ExitCode.DONE
    report_checks(session, f"weights at {view.path}", path_stages(view), code, junit=junit)
    return code


def verify_nodes(session: Session, service: str, *, junit: str = "") -> ExitCode:
    """Have all nodes hash again, and show what each found.

    Raises:
        PlanError: Neither a path nor a fleet was named, or no node is present.
    """
    from vctl_cli import fleetverify  # noqa: PLC0415  few want it, and it needs the store
    from vctl_cli.options import Output  # noqa: PLC0415

    if not (session.shared.fleet or service):
        raise PlanError("missing", path="PATH", hint="or --fleet NAME, to ask a fleet's nodes")
    is_table = session.output is Output.TABLE

    async def act(store: "Store") -> ExitCode:
        view = await fleetverify.verify_fleet(
            store,
            session.target.keys,
            service=service,
            request=session.request(""),
            timeout_s=session.target.timeout_s,
            tell=lambda node: (
                session.screen.data(fleetverify.node_text(node)) if is_table else None
            ),
        )
        show(session, view, kind="fleet-verification", table=fleetverify.verdict_text(view))
        title = f"what the nodes of fleet {session.target.keys.fleet} serve from"
        found = fleetverify.node_stages(view)
        report_checks(session, title, found, view.exit_code, junit=junit)
        return view.exit_code

    return session.run(act)
