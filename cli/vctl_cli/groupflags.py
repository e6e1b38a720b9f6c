"""Flags that name one group of requests, of `rollout start` and of `route override set`."""

from typing import Annotated, Any

import typer

from vctl_plans.errors import PlanError
from vctl_plans.names import check_name

Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="ID", help="Of a group: a user; may be repeated."),
]
Tenant = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of a group: the requests' tenant. With --new-service: whose it is.",
    ),
]
GroupTenant = Annotated[
    str,
    typer.Option("--tenant", metavar="NAME", help="Of a group: the requests' tenant."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        help="Of a group: a header that its requests have; may be repeated.",
    ),
]
Percent = Annotated[
    float | None,
    typer.Option(
        metavar="PERCENT", help="Of a group: how many of those it is for get the release."
    ),
]
GroupName = Annotated[
    str, typer.Option("--group", metavar="NAME", help="The group's name. [default: flags]")
]

UNNAMED = "flags"
"""What a group of flags is called unless it is given a name."""


def group_content(
    *,
    name: str,
    users: list[str] | None,
    tenant: str,
    headers: list[str] | None,
    percent: float | None,
) -> dict[str, Any]:
    """Return the one group that the flags name, as a plan file would; empty where they name none.

    Raises:
        PlanError: A header is not NAME=VALUE.
    """
    pairs = [each.partition("=") for each in headers or ()]
    wrong = [pair[0] for pair in pairs if not pair[0] or not pair[1]]
    if wrong:
        raise PlanError(f"{wrong[0]!r} is no header: write NAME=VALUE", path="--header")
    given = {
        "users": list(users or ()),
        "tenant": tenant,
        "header": {pair[0]: pair[2] for pair in pairs},
        "percent": percent,
    }
    content = {field: value for field, value in given.items() if value}
    return {"name": name or UNNAMED, **content} if content or name else {}


def owner_of(tenant: str) -> str:
    """Return whose a new service is, as it was given; empty: nobody's in particular.

    Raises:
        PlanError: It is no name.
    """
    return check_name(tenant, what="--tenant") if tenant else ""
