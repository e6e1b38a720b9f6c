"""`vctl service import`: what engines serve already becomes a service's first release."""

from typing import Annotated

import typer

from vctl_cli.adopting import Adoption, adopt
from vctl_cli.exitcodes import ExitCode
from vctl_cli.groupflags import owner_of
from vctl_cli.options import DirectService, NoWatch, OwnerTenant, Reason, Root
from vctl_cli.session import session_of
from vctl_cli.watching import finish
from vctl_plans.names import check_name, check_root
from vctl_plans.route import Mode
from vctl_plans.store.port import Store


def import_service(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service to make.")],
    *,
    adapter: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The name under which engines serve it. [default: SERVICE]"
        ),
    ] = "",
    path: Annotated[
        str,
        typer.Option(
            metavar="URI", help="Where nodes read it. [default: where engines loaded it from]"
        ),
    ] = "",
    root: Root = "",
    direct: DirectService = False,
    tenant: OwnerTenant = "",
    reason: Reason = "",
    no_watch: NoWatch = False,
) -> ExitCode:
    """Adopt an adapter that engines serve already.

    It was loaded by hand, under a public name, and becomes the first release of a service. Agents
    tell which engines list it, and from where. Its bytes are hashed here, or by nodes where only
    they have them; every node verifies its copy and loads it under its identity, and gateways serve
    SERVICE. Nothing that runs is disturbed: who calls an engine by the public name goes on until
    you unload it. An adapter that no node can read is adopted as it is, and said to be unverified.
    """
    session = session_of(ctx)
    check_name(service, what="service")
    if root:
        check_root(root, what="--root")
    asked = Adoption(
        service=service,
        name=adapter or service,
        path=path,
        root=root,
        mode=Mode.DIRECT if direct else Mode.GATEWAY,
        tenant=owner_of(tenant),
        request=session.request(reason or "imported"),
    )

    async def act(store: Store) -> ExitCode:
        decision = await adopt(session, store, asked)
        return await finish(session, store, decision, is_watched=not no_watch)

    return session.run(act)
