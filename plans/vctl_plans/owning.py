"""Whose a service is: set when it is made, or when an operator hands it to another tenant."""

import msgspec

from vctl_plans.codec import Value
from vctl_plans.errors import PlanError
from vctl_plans.operate import Request
from vctl_plans.phase import RolloutPhase
from vctl_plans.rollout import Entry, ServiceSpec
from vctl_plans.route import Mode
from vctl_plans.snapshot import Service


class Handover(Value, frozen=True, kw_only=True):
    """What is to be written."""

    spec: ServiceSpec
    entry: Entry  # of the history: who has done it, and why


def made(service: Service, *, mode: Mode, tenant: str) -> Service:
    """Return a service as one of this mode and tenant, if it is still to be made.

    Args:
        service: As it was read.
        mode: How it is to be served; the mode of gateways suits any that exists.
        tenant: Whose it is to be; empty: of whom it is, or nobody's in particular.

    Raises:
        PlanError: It exists, and is otherwise.
    """
    if mode is Mode.DIRECT and service.spec_revision and not service.is_direct:
        raise PlanError(
            f"{service.name} is served through gateways; how it is served is set when it is made",
            path="--direct",
        )
    if tenant and service.spec_revision and service.tenant != tenant:
        raise PlanError(
            f"{service.name} is of the tenant {service.tenant}: that is set when it is made",
            path="--tenant",
            hint=f"hand it over: vctl service set {service.name} --tenant {tenant}",
        )
    if service.spec_revision or (mode is Mode.GATEWAY and not tenant):
        return service
    spec = service.spec or ServiceSpec(service=service.name)
    spec = msgspec.structs.replace(spec, mode=mode, tenant=tenant or spec.tenant)
    return msgspec.structs.replace(service, spec=spec)


def hand_over(service: Service, tenant: str, request: Request) -> Handover | None:
    """Decide that a service is another tenant's; None: it is that tenant's already.

    Its releases, its route and its adapters stay: only the keys that reach it change, and the salt
    of its caches, so that nothing that was computed for one tenant answers another.
    """
    if service.tenant == tenant:
        return None
    spec = service.spec or ServiceSpec(service=service.name)
    return Handover(
        spec=msgspec.structs.replace(spec, tenant=tenant, by=request.by),
        entry=Entry(
            rollout=request.id,
            seq=0,
            phase=RolloutPhase.CONVERGED,
            sentence=f"{service.name} is of the tenant {tenant} from now on; before, of"
            f" {service.tenant}",
            by=request.by,
            reason=request.reason,
        ),
    )
