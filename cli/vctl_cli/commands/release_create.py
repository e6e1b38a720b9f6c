"""`vctl release create`: a release that nothing serves yet."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from vctl_cli.artifacts import bring, refuse_misfit
from vctl_cli.commands.release_show import ReleaseView
from vctl_cli.componentflags import (
    HashOnNodes,
    Index,
    IndexRoot,
    Prompt,
    PromptRoot,
    Push,
    Weights,
    WeightsRoot,
    release_content,
)
from vctl_cli.deciding import repeated
from vctl_cli.exitcodes import ExitCode
from vctl_cli.groupflags import owner_of
from vctl_cli.options import NewService, OwnerTenant, Reason, Root
from vctl_cli.reading import read_known_service, read_service, unknown_service
from vctl_cli.render.document import show
from vctl_cli.session import session_of
from vctl_plans.document import Source
from vctl_plans.errors import PlanError
from vctl_plans.keys import Keys
from vctl_plans.names import check_name
from vctl_plans.operate import Request
from vctl_plans.phase import Component
from vctl_plans.release import Artifact, Release, compose
from vctl_plans.store.commit import release_txn
from vctl_plans.store.port import Store


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what of the service itself."""

    request: Request
    is_new: bool = False  # it may be made
    tenant: str = ""  # whose it then is


def create(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service.")],
    *,
    adapter: Annotated[
        str, typer.Option(metavar="SOURCE", help="The adapter: a directory, or its URI.")
    ] = "",
    root: Root = "",
    prompt: Prompt = "",
    prompt_root: PromptRoot = "",
    index: Index = "",
    index_root: IndexRoot = "",
    weights: Weights = "",
    weights_root: WeightsRoot = "",
    hash_on_nodes: HashOnNodes = None,
    push: Push = "",
    reason: Reason = "",
    new_service: NewService = False,
    tenant: OwnerTenant = "",
) -> ExitCode:
    """Make a release that nothing serves yet.

    It is the stable release with the given components in their places; roll it out with
    `vctl rollout start --release N`. A SOURCE is a path, or a URI: file://, https://, s3://, hf://.
    What is at a path is hashed here; what is elsewhere is known by the manifest beside it. For what
    only nodes can read, give its root, or have nodes hash it and agree.
    """
    session = session_of(ctx)
    check_name(service, what="service")
    content = release_content(
        adapter=(adapter, root),
        prompt=(prompt, prompt_root),
        index=(index, index_root),
        weights=(weights, weights_root),
        hash_on_nodes=hash_on_nodes,
        push=push,
    )
    if not content:
        hint = "give --adapter, --prompt, --index or --weights"
        raise PlanError("what is to be in it?", path="release", hint=hint)
    wanted = {Component(name): Source(**given) for name, given in content.items()}
    for component, source in wanted.items():
        refuse_misfit(source, component)
    request, keys = session.request(reason), session.target.keys
    owner = owner_of(tenant)

    async def act(store: Store) -> Release:
        await require_service(store, keys, service, is_new=new_service)
        made = await bring(session, store, wanted)
        asked = Asked(request=request, is_new=new_service, tenant=owner)
        return await write(store, keys, service, made, asked=asked)

    release = session.run(act)
    view = ReleaseView(release=release, state="")
    show(session, view, kind="release", table=_text(release))
    return ExitCode.DONE


async def require_service(store: Store, keys: Keys, service: str, *, is_new: bool) -> None:
    """Refuse a service that does not exist, unless it is to be made: before anything is hashed.

    Raises:
        PlanError: It does not, and was not said to be new.
    """
    if not is_new:
        await read_known_service(store, keys, service, can_make=True)


async def write(
    store: Store,
    keys: Keys,
    service: str,
    components: Mapping[Component, Artifact],
    *,
    asked: Asked,
) -> Release:
    """Write the next release of *service*, with *components* in it.

    Raises:
        PlanError: The service does not exist, and was not said to be new.
    """

    async def once() -> Release:
        reading = await read_service(store, keys, service, tenant=asked.tenant)
        if not (reading.is_known or asked.is_new):
            raise await unknown_service(store, keys, service, can_make=True)
        known = reading.service
        release = compose(
            service,
            components,
            known=known.releases.values(),
            stable=known.stable,
            by=asked.request.by,
            reason=asked.request.reason,
        )
        await store.commit(release_txn(keys, known, release, by=asked.request.by))
        return release

    return await repeated(once)


def _text(release: Release) -> str:
    return f"{release.service}: release {release.number} ({release.vector_text})"
