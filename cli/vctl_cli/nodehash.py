"""An artifact that only nodes can read: several of them hash it, and must agree.

What is waited for: every node that was asked, `--timeout` (30 minutes), or one of them leaving the
fleet, whichever comes first. Anything but the same answer from all makes nothing.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing

from vctl_cli.asking import ask_nodes, present_nodes
from vctl_cli.render.progress import counting
from vctl_cli.session import Session
from vctl_plans.agreement import agreed, answer_text, chosen
from vctl_plans.errors import RootMismatch
from vctl_plans.inspection import Hashed, HashRequest
from vctl_plans.keys import Keys
from vctl_plans.node import NodeReport
from vctl_plans.phase import Component
from vctl_plans.release import Artifact
from vctl_plans.store.port import Store
from vctl_plans.units import bytes_text, duration_text

LIMIT_S = 1800.0
"""How long answers are waited for, unless `--timeout` says it: a terabyte from a good disk."""


async def hashed_on_nodes(
    session: Session, store: Store, uri: str, *, component: Component, count: int, root: str
) -> Artifact:
    """Have *count* nodes hash what lies at *uri*, and return it as the artifact that it is.

    Args:
        session: Says which fleet, and how long to wait.
        store: Where to ask.
        uri: Where nodes read it.
        component: What it is to be.
        count: How many nodes.
        root: What its root must be; any when empty.

    Raises:
        PlanError: Fewer nodes are present.
        RootMismatch: They do not agree, or the root is another.
        ArtifactError: A node could not hash it, or did not answer.
    """
    keys, screen = session.target.keys, session.screen
    limit_s = session.target.timeout_s or LIMIT_S
    asker = session.request("")
    field = f"release.{component}.hash_on_nodes"
    nodes = chosen(await present_nodes(store, keys), count, request=asker.id, field=field)
    request = HashRequest(id=asker.id, nodes=nodes, by=asker.by, source=uri, component=component)
    with counting(screen, f"hashing {uri}", len(nodes)) as tell:
        answers, gone = await _answers(
            store,
            keys,
            request,
            timeout_s=limit_s,
            tell=lambda node, answer: tell(f"  {node}: {answer_text(answer)}"),
        )
    in_time = f"did not answer within {duration_text(limit_s)}"
    late = "had not answered by then" if gone else in_time
    silent = {node: "left the fleet" if node in gone else late for node in nodes}
    found = agreed(uri, nodes, answers, silent=silent)
    if root and root != found.root:
        raise RootMismatch(f"{uri}: its root is {found.root}, not {root}")
    size = bytes_text(found.size_bytes)
    screen.say(f"{uri}: {size}, root {found.root}")
    screen.say(f"  found alike by all that were asked ({len(nodes)})")
    return Artifact(
        root=found.root,
        source=uri,
        size_bytes=found.size_bytes,
        rank=found.rank,
        base_name=found.base_name,
    )


async def _answers(
    store: Store,
    keys: Keys,
    request: HashRequest,
    *,
    timeout_s: float,
    tell: Callable[[str, Hashed], None],
) -> tuple[dict[str, Hashed], set[str]]:
    """Return what came until all had answered, time was up or a node was gone; and which was."""
    found: dict[str, Hashed] = {}

    def take(node: str, answer: Hashed) -> None:
        found[node] = answer
        tell(node, answer)

    asking = asyncio.ensure_future(
        ask_nodes(
            store,
            keys,
            request,
            nodes=request.nodes,
            answer=lambda report: _answer(report, request.id),
            timeout_s=timeout_s,
            tell=take,
        )
    )
    leaving = asyncio.ensure_future(_until_one_leaves(store, keys, request.nodes, found))
    try:
        done, _ = await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # raises what ended it
    finally:
        for each in (asking, leaving):
            each.cancel()
        await asyncio.gather(asking, leaving, return_exceptions=True)
    return found, leaving.result() if not leaving.cancelled() else set()


async def _until_one_leaves(
    store: Store, keys: Keys, nodes: Collection[str], answered: Collection[str]
) -> set[str]:
    """Return which nodes are not present any more, once an answer is missing of one."""
    async with aclosing(store.watch(keys.nodes)) as updates:  # type: ignore[type-var]
        async for update in updates:
            present = {key.removeprefix(keys.nodes) for key in update.entries}
            gone = set(nodes) - set(answered) - present
            if update.is_live and gone:
                return gone
    return set()


def _answer(report: NodeReport, request: str) -> Hashed | None:
    return next((each for each in report.hashed if each.request == request), None)
