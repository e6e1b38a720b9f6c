"""Finding what engines serve already, and verifying it, for `vctl service import`.

The bytes are hashed here if this machine has them, else by nodes; a root that was given is taken
as it is, and nodes verify it like any other before they load anything.
"""

from pathlib import Path
from urllib.parse import unquote

import msgspec

from vctl_cli.artifacts import bring
from vctl_cli.asking import ask_nodes
from vctl_cli.deciding import carry_out
from vctl_cli.planfile import source_uri
from vctl_cli.reading import Reading, read_fleet_from, read_service
from vctl_cli.session import Session
from vctl_plans import location
from vctl_plans.adopting import Sighting, agreed, refuse_known, sighting
from vctl_plans.document import FullSwitchDocument, ReleaseSpec, Source, resolve
from vctl_plans.errors import ArtifactError, PlanError
from vctl_plans.inspection import Hashed, HashRequest
from vctl_plans.node import NodeReport
from vctl_plans.operate import AlreadyDone, Attach, Begin, Request, start
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, adopted
from vctl_plans.rollout import listed
from vctl_plans.route import Mode
from vctl_plans.store.port import Store
from vctl_plans.units import duration_text

HASHED_WITHIN_S = 120.0
NODES_ASKED = 2
"""That hash what this machine cannot read; every node verifies its own copy anyway."""


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    service: str
    name: str  # under which engines serve it
    path: str = ""  # where nodes read it; empty: where engines loaded it from
    root: str = ""
    mode: Mode = Mode.GATEWAY
    tenant: str = ""
    request: Request


async def adopt(session: Session, store: Store, asked: Adoption) -> Begin | Attach | AlreadyDone:
    """Write the service with what engines serve as its first release, and its rollout.

    Raises:
        PlanError: No engine serves it, or from several places.
        TransitionError: The service exists, with something else.
        ArtifactError: The bytes may not be served, or differ between nodes.
    """
    keys = session.target.keys
    present = (await read_fleet_from(store, keys)).present()
    seen = sighting(present, asked.name)
    _tell(session, seen)
    made = await _artifact(session, store, asked, seen)
    source = Source(source=made.source, root=made.root)
    document = FullSwitchDocument(
        service=asked.service, release=ReleaseSpec(adapter=source), reason=asked.request.reason
    )
    plan = resolve(document, {Component.ADAPTER: made.root})

    def decide(reading: Reading) -> Begin | Attach | AlreadyDone:
        refuse_known(reading.service, made)
        return start(
            reading.service,
            plan,
            wish={Component.ADAPTER: made},
            roster=reading.present,
            request=asked.request,
        )

    async def read() -> Reading:
        return await read_service(store, keys, asked.service, mode=asked.mode, tenant=asked.tenant)

    return await carry_out(store, keys, read, decide)


def _tell(session: Session, seen: Sighting) -> None:
    for path, nodes in seen.paths.items():
        session.screen.say(f"{seen.name} is served from {path} by {listed(nodes)}")
    if seen.missing:
        session.screen.say(f"  and not by {listed(seen.missing)}, which will load it too")


async def _artifact(session: Session, store: Store, asked: Adoption, seen: Sighting) -> Artifact:
    """Return what is adopted, verified as far as anybody can.

    Only where nodes say that they cannot read it is it taken unverified; silence is no such word.
    """
    uri = source_uri(asked.path or seen.path, Path.cwd())
    source = Source(source=uri, root=asked.root)
    if asked.root or not _lies_elsewhere(uri):
        return (await bring(session, store, {Component.ADAPTER: source}))[Component.ADAPTER]
    answers = await _hashed_by_nodes(session, store, asked, uri=uri, nodes=seen.nodes)
    found = agreed(answers, uri)
    if found:
        session.screen.say(f"  hashed by {listed(tuple(sorted(answers)))}: root {found.root}")
        return found
    why = "; ".join(f"{node}: {answers[node].problem}" for node in sorted(answers))
    if asked.path:
        raise ArtifactError(f"{uri} cannot be read, neither here nor by nodes ({why})")
    return _unverified(session, seen, why)


def _unverified(session: Session, seen: Sighting, why: str) -> Artifact:
    if seen.missing:
        raise PlanError(
            f"nobody can read {seen.path} ({why}), so {listed(seen.missing)} could not load it",
            path="--adapter",
            hint="name where nodes can read the adapter: --path URI",
        )
    session.screen.complain(
        f"{seen.name} is adopted UNVERIFIED: nobody can read {seen.path} ({why});"
        " vctl can neither load it again nor say what it is"
    )
    return adopted(seen.name, seen.path)


def _lies_elsewhere(uri: str) -> bool:
    """Whether *uri* is a path, and nothing is there on this machine."""
    parts = location.checked(uri, field="--path")
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()


async def _hashed_by_nodes(
    session: Session, store: Store, asked: Adoption, *, uri: str, nodes: tuple[str, ...]
) -> dict[str, Hashed]:
    chosen = nodes[:NODES_ASKED]
    session.screen.say(f"{uri} is not on this machine: {listed(chosen)} hash it")
    request_id = asked.request.id

    def answer(report: NodeReport) -> Hashed | None:
        return next((each for each in report.hashed if each.request == request_id), None)

    limit_s = session.target.timeout_s or HASHED_WITHIN_S
    answers = await ask_nodes(
        store,
        session.target.keys,
        HashRequest(
            id=request_id,
            nodes=chosen,
            source=uri,
            component=Component.ADAPTER,
            by=asked.request.by,
        ),
        nodes=chosen,
        answer=answer,
        timeout_s=limit_s,
    )
    silent = tuple(node for node in chosen if node not in answers)
    if silent:
        raise ArtifactError(
            f"{listed(silent)} did not answer within {duration_text(limit_s)}: what lies at {uri}"
            " is not known",
            hint="give it longer with --timeout, or say what it is with --root",
        )
    return answers
