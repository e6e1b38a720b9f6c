"""Direct mode on a real vLLM: clients call it by one name, and another release takes the name.

No gateway is between. Every answer is one release's from its first token to its last, and none
comes from what another left in the cache.
"""

from collections.abc import Iterator
from email.message import Message

import pytest

from tests.e2e.support import SERVICE, Fleet
from tests.vllm.asking import PROMPT, ask, of_adapter, running, unaided, unload
from tests.vllm.fleet import PROMPTS, Answer, Load, References, a_vllm_fleet, references
from tests.vllm.serving import Vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

LONG = 300
"""Tokens of an answer that is still being written while the name goes to another release."""


class DirectLoad(Load):
    """Clients that call the engines themselves: no header says who answered."""

    def _release(self, headers: Message) -> int:
        assert "x-vctl-release" not in headers
        return 0


@pytest.fixture(scope="module")
def vllms(vllm: Vllm, second_vllm: Vllm) -> list[Vllm]:
    return [vllm, second_vllm]


@pytest.fixture(scope="module")
def right(vllm: Vllm) -> References:
    return references(vllm, ("v1", "v2"))


@pytest.fixture(scope="module")
def fleet(
    vllms: list[Vllm], right: References, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Two nodes without a gateway; their engines answer by v1 under the service's own name."""
    with a_vllm_fleet(tmp_path_factory.mktemp("direct"), vllms, "--gateway", "none") as made:
        start = ("rollout", "start", "--new-service", "--direct", "--adapter")
        said = made.vctl(*start, vllms[0].model("v1"))
        assert said.code == 0, (said, made.logs())
        yield made
    for vllm in vllms:
        unload(vllm.url, SERVICE)


def epochs(fleet: Fleet) -> list[int]:
    present = fleet.dev.read().present()
    return [present[node].cache_epoch for node in sorted(present)]


def is_answered_by(vllms: list[Vllm], right: References, adapter: str) -> bool:
    """Whether every engine answers by an adapter, the second time from its cache."""
    return all(
        answer.equals(expected) and answer.cached >= (32 if n else 0)
        for vllm in vllms
        for prompt, expected in zip(PROMPTS, right[adapter], strict=True)
        for n, answer in enumerate([ask(vllm.url, SERVICE, prompt) for _ in range(2)])
    )


def _is_of_one(answer: Answer, right: References) -> bool:
    return any(answer.said.equals(said[answer.prompt]) for said in right.values())


def test_name_goes_to_the_next_release_and_back(
    fleet: Fleet, vllms: list[Vllm], right: References
) -> None:
    """What runs meanwhile ends on what it began with, and its transcript is in no cache."""
    of_first, of_second = (of_adapter(vllms[0].url, vllms[0].model(v), max_tokens=LONG)
                           for v in ("v1", "v2"))  # fmt: skip
    before = epochs(fleet)
    assert is_answered_by(vllms, right, "v1")
    with DirectLoad([vllm.url for vllm in vllms]).running() as load:
        load.wait_for(10)
        with running(vllms[0].url, SERVICE, max_tokens=LONG) as first:
            said = fleet.vctl("rollout", "start", "--adapter", vllms[0].model("v2"))
            assert said.code == 0, (said, fleet.logs())
        assert is_answered_by(vllms, right, "v2")
        switched = epochs(fleet)
        load.wait_for(10)
        with running(vllms[0].url, SERVICE, max_tokens=LONG) as second:
            back = fleet.vctl("rollback", "--now", "--reason", "test")
            assert back.code == 0, (back, fleet.logs())
        assert is_answered_by(vllms, right, "v1")
        load.wait_for(10)

    # Between unload and load vLLM knows no such name, though it is paused: docs/adoption.md.
    assert [] == [failure for failure in load.failures if "HTTPError 404" not in failure]
    assert [] == [a for a in load.answers if not _is_of_one(a, right)]
    assert (list(of_first.tokens), list(of_second.tokens)) == (first.tokens, second.tokens)
    for answer in (first, second):
        transcript = (*PROMPT, *answer.tokens)
        again = ask(vllms[0].url, SERVICE, transcript)
        assert again.equals(unaided(vllms[0].url, SERVICE, transcript))
    assert [[n + 1 for n in before], [n + 2 for n in before]] == [switched, epochs(fleet)]
    assert (1, (2,)) == (fleet.stable(), fleet.service().current_route.revoked)
