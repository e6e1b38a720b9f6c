"""`vctl route export`: a service's split, for a proxy that is not ours."""

from enum import StrEnum
from typing import Annotated

import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.reading import read_fleet, service_of
from vctl_cli.session import session_of
from vctl_plans.export import FORMATS, Split, split_of
from vctl_plans.phase import NodePhase
from vctl_plans.snapshot import Fleet
from vctl_plans.snapshot import Service as Snapshot


class Format(StrEnum):
    """What can be written."""

    NGINX = "nginx"
    HAPROXY = "haproxy"
    ENVOY = "envoy"


def export(
    ctx: typer.Context,
    *,
    service: Service = "",
    form: Annotated[Format, typer.Option("--format", help="Whose configuration.")],
) -> ExitCode:
    """Write a service's present split for another proxy.

    The proxy chooses by weight, names its choice in x-vctl-release, and sends to nodes that serve
    it. Follow changes with `vctl route show --watch`, and write it again at each.
    """
    session = session_of(ctx)
    known = read_fleet(session)
    split = exported(known, service_of(session.target.keys, known, session.service(service)))
    session.screen.data(FORMATS[form](split))
    return ExitCode.DONE


def exported(known: Fleet, service: Snapshot) -> Split:
    """Return the split of a service, with the gateways of the nodes that are ready for it.

    Raises:
        VctlError: It cannot be exported, and why.
    """
    gateways: dict[int, tuple[str, ...]] = {}
    for node, report in sorted(known.present().items()):
        url = known.records[node].gateway_url
        for each in report.releases:
            if url and each.service == service.name and each.phase is NodePhase.READY:
                gateways[each.number] = (*gateways.get(each.number, ()), url)
    return split_of(service.current_route, revision=service.route_revision, gateways=gateways)
