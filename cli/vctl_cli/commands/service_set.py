"""`vctl service set`: hand a service to a tenant."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from vctl_cli.deciding import repeated
from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Reason
from vctl_cli.reading import read_known_service
from vctl_cli.render.document import show
from vctl_cli.session import session_of
from vctl_plans.keys import Keys
from vctl_plans.names import check_name
from vctl_plans.operate import Request
from vctl_plans.owning import hand_over
from vctl_plans.store.commit import handover_txn
from vctl_plans.store.port import Store
from vctl_plans.units import utc_text


class SetView(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a service is."""

    service: str
    tenant: str
    before: str  # whose it was


def set_service(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service.")],
    *,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose it is from now on.")],
    reason: Reason = "",
) -> ExitCode:
    """Hand a service to a tenant.

    Where gateways ask for API keys, it answers that tenant's keys from now on and is 404 for the
    others. What is cached for it is computed anew, since the tenant is in the salt of its caches;
    releases and the route stay as they are.
    """
    session = session_of(ctx)
    check_name(tenant, what="--tenant")
    session.confirm(f"Hand {service} to {tenant}: keys of other tenants get 404 from now on?")
    request, keys = session.request(reason), session.target.keys
    view = session.run(lambda store: handed_over(store, keys, service, tenant, request=request))
    show(session, view, kind="service", table=_text(view))
    return ExitCode.DONE


async def handed_over(
    store: Store, keys: Keys, service: str, tenant: str, *, request: Request
) -> SetView:
    """Write whose the service is, unless it is so already.

    Raises:
        PlanError: The service does not exist.
    """

    async def once() -> SetView:
        known = (await read_known_service(store, keys, service)).service
        decided = hand_over(known, tenant, request)
        if decided:
            found = await store.get(keys.spec(service))
            at = utc_text(datetime.now(UTC))
            await store.commit(
                handover_txn(keys, known, decided, before=found.value if found else b"", at=at)
            )
        return SetView(service=service, tenant=tenant, before=known.tenant)

    return await repeated(once)


def _text(view: SetView) -> str:
    if view.before == view.tenant:
        return f"{view.service} is of the tenant {view.tenant} already"
    return f"{view.service} is of the tenant {view.tenant} from now on; before, of {view.before}"
