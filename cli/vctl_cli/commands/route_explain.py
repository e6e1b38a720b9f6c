"""`vctl route explain`: which release a request would get, and why.

The answer is made by the function that every gateway decides by, on the route as etcd has it.
"""

from typing import Annotated

import msgspec
import typer

from vctl_cli.exitcodes import ExitCode
from vctl_cli.options import Service
from vctl_cli.render.document import show
from vctl_cli.routes import Known, read_route
from vctl_cli.session import session_of
from vctl_plans.errors import PlanError
from vctl_plans.held import glass_text
from vctl_plans.rollout import listed
from vctl_plans.route import Consistency, Route
from vctl_plans.routing import (
    SESSION_HEADER,
    TENANT_HEADER,
    Asked,
    Refusal,
    Why,
    choose,
    session_key,
)
from vctl_plans.share import FULL_WEIGHT, share

TENANT_HELP = "The tenant of its API key; where gateways ask for none, its x-vctl-tenant."

ANY = "any"
"""The id of a request of which none was given."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A choice and its reason."""

    service: str
    release: int  # 0: refused
    why: str
    sentence: str
    key: str  # what is hashed
    share: float  # where the key falls, in percent
    notes: tuple[str, ...] = ()  # where some gateways do otherwise


def explain(
    ctx: typer.Context,
    *,
    service: Service = "",
    user: Annotated[str, typer.Option(metavar="ID", help="The request's user.")] = "",
    tenant: Annotated[str, typer.Option(metavar="NAME", help=TENANT_HELP)] = "",
    session_id: Annotated[
        str, typer.Option("--session", metavar="ID", help="Its x-vctl-session.")
    ] = "",
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    release: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The release that it names itself.")
    ] = None,
) -> ExitCode:
    """Say which release a request would get, and why.

    What is not given is what the request does not have; its API key is the right one. A request
    without session, conversation or user is split by itself, so that the same request again may
    get another release.
    """
    session = session_of(ctx)
    headers = _headers(header or [])
    headers |= {SESSION_HEADER: session_id} if session_id else {}
    asked = Asked(
        session_key(headers, {"user": user} if user else {}, ANY),
        release=release or 0,
        request=ANY,
        user=user,
        tenant=tenant,
        headers=headers,
    )
    found = explained(read_route(session, session.service(service)), asked)
    show(session, found, kind="explanation", table="\n".join([found.sentence, *found.notes]))
    return ExitCode.DONE if found.release else ExitCode.FAILED


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    wrong = [name for name, sign, _ in pairs if not name or not sign]
    if wrong:
        raise PlanError(f"{wrong[0]!r} is no header: write NAME=VALUE", path="--header")
    return {name.lower(): value for name, _, value in pairs}


def _is_alone(route: Route, asked: Asked) -> bool:
    """Whether each such request is split by itself, by an id that only it has."""
    return route.consistency is Consistency.EVENTUAL or asked.key == session_key({}, {}, ANY)


def _split(known: Known, asked: Asked) -> Explanation:
    """Return what such requests get: of one alone nothing is known beforehand."""
    route = known.service.current_route
    likelier = route.candidate if route.weight > FULL_WEIGHT / 2 else route.stable
    return Explanation(
        service=route.service,
        release=likelier or route.candidate,
        why="split",
        sentence=f"release {route.candidate} for {route.weight:g} % of such requests, release"
        f" {route.stable or 'none'} for the others: each is split by itself",
        key=asked.key,
        share=share(route.salt, asked.key),
    )


def explained(known: Known, asked: Asked) -> Explanation:
    """Return what gateways do with a request: those that ask for keys, and root's own word too."""
    service, notes = known.service, _glass_notes(known)
    asking = sorted(node for node, report in known.reports.items() if report.checks_keys)
    if not asking:
        return _noted(explanation(known, asked), notes)
    if asked.tenant not in {"", service.tenant}:
        said = f"{service.name} is of the tenant {service.tenant}, whose API keys alone reach it"
        if not any(report.checks_keys is False for report in known.reports.values()):
            return _noted(_refused(known, asked, Refusal(404, said)), notes)
        return _noted(
            explanation(known, asked), (*notes, f"404 on {listed(tuple(asking))}: {said}")
        )
    headers = {**asked.headers, TENANT_HEADER: service.tenant}
    asked = msgspec.structs.replace(asked, tenant=service.tenant, headers=headers)
    return _noted(explanation(known, asked), notes)


def _noted(found: Explanation, notes: tuple[str, ...]) -> Explanation:
    return msgspec.structs.replace(found, notes=notes)


def _glass_notes(known: Known) -> tuple[str, ...]:
    """Return where root has the service served by a release, whatever the route says."""
    name = known.service.name
    found = {n: r.overrides[name] for n, r in sorted(known.reports.items()) if name in r.overrides}
    return (glass_text(name, found),) if found else ()


def _refused(known: Known, asked: Asked, refusal: Refusal) -> Explanation:
    return Explanation(
        service=known.service.name,
        release=0,
        why="refused",
        sentence=f"refused with {refusal.status}: {refusal.reason}",
        key=asked.key,
        share=share(known.service.current_route.salt, asked.key),
    )


def explanation(known: Known, asked: Asked) -> Explanation:
    """Return which release a request gets by the route, and why."""
    route, name = known.service.current_route, known.service.name
    choice = choose(route, asked, known.groups)
    place = share(route.salt, asked.key)
    if isinstance(choice, Refusal):
        return _refused(known, asked, choice)
    if choice.why in {Why.CANDIDATE, Why.STABLE} and route.candidate and _is_alone(route, asked):
        return _split(known, asked)
    falls = f"its key {asked.key!r} falls at {place:.2f} %"
    why = {
        Why.NAMED: "it names that release itself",
        Why.OVERRIDE: f"it is in the group {choice.group}",
        Why.CANDIDATE: f"{falls}, below the weight of {route.weight:g} %",
        Why.STABLE: f"{falls}, not below the weight of {route.weight:g} %"
        if route.candidate
        else "that is the stable release, and nothing moves",
    }[choice.why]
    return Explanation(
        service=name,
        release=choice.release,
        why=choice.why.value,
        sentence=f"release {choice.release}: {why}",
        key=asked.key,
        share=place,
    )
