"""Several nodes hash one source, and must agree: which are asked, and what their answers come to.

One node's word is not enough for a release: its mount may be stale, its disk may be failing, or it
may not be what it says. A release is made only of what all that were asked found alike.
"""

from collections.abc import Collection, Mapping

from blake3 import blake3

from vctl_plans.errors import ArtifactError, PlanError, RootMismatch
from vctl_plans.inspection import Hashed
from vctl_plans.rollout import listed
from vctl_plans.units import bytes_text

SHOWN_CHARS = 15  # of a root in a message: "b3:" and twelve digits


def chosen(present: Collection[str], count: int, *, request: str, field: str) -> tuple[str, ...]:
    """Return which *count* of the nodes that are *present* are asked; others for each request.

    Raises:
        PlanError: Fewer are present.
    """
    if len(present) < count:
        here = listed(tuple(sorted(present))) or "none"
        raise PlanError(
            f"asks for {count} nodes; present: {len(present)} ({here})",
            path=field,
            hint="ask for fewer, or give the root that the bytes must have",
        )
    by_lot = sorted(present, key=lambda node: blake3(f"{request} {node}".encode()).digest())
    return tuple(sorted(by_lot[:count]))


def agreed(
    source: str, asked: Collection[str], answers: Mapping[str, Hashed], *, silent: Mapping[str, str]
) -> Hashed:
    """Return what all nodes that were asked found.

    Args:
        source: What they were asked about.
        asked: The nodes.
        answers: What came back, by node.
        silent: Why an answer is missing, by node, as in "did not answer within 30s".

    Raises:
        RootMismatch: They found different things.
        ArtifactError: A node could not hash it, or did not answer.
    """
    found: dict[Hashed, list[str]] = {}
    words: dict[str, list[str]] = {}
    for node in sorted(asked):
        answer = answers.get(node)
        if answer:
            found.setdefault(_without_request(answer), []).append(node)
        words.setdefault(answer_text(answer) if answer else silent[node], []).append(node)
    roots = [each for each in found if each.root]
    if len(roots) == 1 and len(found[roots[0]]) == len(asked):
        return roots[0]
    said = [f"{listed(tuple(nodes))}: {what}" for what, nodes in words.items()]
    if len(roots) > 1:
        raise RootMismatch(
            f"{source}: the nodes do not agree what it is: {'; '.join(said)}",
            hint="is the same mounted on all of them, and has whoever writes it ended?",
        )
    raise ArtifactError(
        f"{source}: not hashed by all nodes that were asked ({len(asked)}): {'; '.join(said)}",
        hint="nothing was made; see vctl status, or give the root that the bytes must have",
    )


def answer_text(answer: Hashed) -> str:
    """Return what a node found, in a few words."""
    if not answer.root:
        return answer.problem
    rank = f", rank {answer.rank}" if answer.rank else ""
    base = f", of {answer.base_name}" if answer.base_name else ""
    return f"{answer.root[:SHOWN_CHARS]} ({bytes_text(answer.size_bytes)}{rank}{base})"


def _without_request(answer: Hashed) -> Hashed:
    return Hashed(
        request="",
        root=answer.root,
        size_bytes=answer.size_bytes,
        rank=answer.rank,
        base_name=answer.base_name,
        problem=answer.problem,
    )
