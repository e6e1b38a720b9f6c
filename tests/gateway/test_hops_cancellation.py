"""References return to 0 on both gateways, wherever either of them cancels a request."""

import asyncio
from pathlib import Path

import pytest

from tests.gateway.hopping import gateways, hops
from tests.gateway.support import Bench, answer_plainly, eventually
from tests.gateway.test_cancellation import KINDS, attempt, cancelled_at
from vctl_agent.gateway import program
from vctl_agent.gateway.hop import HOP_HEADER
from vctl_agent.gateway.proxy import Proxy
from vctl_agent.gateway.wire.message import Answer, Request


class CuttingProxy(Proxy):
    """A proxy whose next request is cancelled at its `step`-th wait, on one side of a hop."""

    step = 0
    is_at_peer = False
    reached = False  # whether that request waited as often as that

    async def answer(self, request: Request) -> Answer:
        if (HOP_HEADER in request.headers) != CuttingProxy.is_at_peer:
            return await super().answer(request)
        CuttingProxy.reached = False
        try:
            response: Answer = await cancelled_at(CuttingProxy.step, super().answer(request))
        except asyncio.CancelledError:
            CuttingProxy.reached = True
            raise
        return response


def at_rest(*benches: Bench) -> bool:
    return all(
        each.gateway.references.listing() == () and each.engine.open == 0 for each in benches
    )


@pytest.mark.parametrize("is_at_peer", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_counts_return_to_zero_wherever_a_hop_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_at_peer: bool
):
    monkeypatch.setattr(program, "Proxy", CuttingProxy)
    monkeypatch.setattr(CuttingProxy, "is_at_peer", is_at_peer)
    async with gateways(tmp_path, 2) as (sender, peer):
        peer.engine.answer = KINDS[kind]
        cuts = 0
        for step in range(1, 200):
            CuttingProxy.step, CuttingProxy.reached = step, False
            await attempt(sender)
            await eventually(lambda: at_rest(sender, peer))
            if not CuttingProxy.reached:
                break
            cuts += 1
        assert cuts >= 3
        CuttingProxy.step = 0
        peer.engine.answer = answer_plainly
        async with sender.ask() as answer:
            assert 200 == answer.status
        assert [] == sender.engine.bodies
        outcome = "unreachable" if is_at_peer else "broken"
        assert ("sent", outcome) in await hops(sender)
