"""Requests of one kind: each is answered once; one that goes ends its work, or lets it go on."""

import asyncio
from collections.abc import Callable

import pytest

from vctl_agent.answering import Answering
from vctl_plans.inspection import CollectRequest, VerifyRequest


class Work:
    """Work that ends when it is let; it counts how often it was begun, and ended early."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.is_let = asyncio.Event()

    async def __call__(self, request: VerifyRequest) -> str:
        self.begun.append(request.id)
        try:
            await self.is_let.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.id)
            raise
        return f"answer to {request.id}"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)


def q(name: str) -> VerifyRequest:
    return VerifyRequest(id=name)


async def test_each_is_answered_once_and_only_those_of_the_kind() -> None:
    work, woken = Work(), []
    work.is_let.set()
    answering = Answering(VerifyRequest, work, lambda: woken.append(1))
    task = asyncio.create_task(answering.run())
    answering.ask([q("b"), CollectRequest(id="c"), q("a")])
    await until(lambda: len(answering.answers) == 2)
    answering.ask([q("b"), q("a")])
    await asyncio.sleep(0.01)
    task.cancel()

    assert ("answer to a", "answer to b") == answering.answers
    assert (["b", "a"], 2) == (work.begun, len(woken))


@pytest.mark.parametrize(("ends", "ended"), [(True, ["a"]), (False, [])])
async def test_work_for_a_request_that_is_gone(*, ends: bool, ended: list[str]) -> None:
    """Half a collection, or a load half asked for, is worse than one that nobody waits for."""
    work = Work()
    answering = Answering(VerifyRequest, work, lambda: None, ends_with_request=ends)
    task = asyncio.create_task(answering.run())
    answering.ask([q("a")])
    await until(lambda: work.begun == ["a"])
    answering.ask([q("b")])
    if not ends:
        await asyncio.sleep(0.01)
        assert ["a"] == work.begun, "one at a time"
    work.is_let.set()
    await until(lambda: bool(answering.answers))
    task.cancel()

    assert ended == work.cancelled
    assert ("answer to b",) == answering.answers


async def test_bug_costs_one_request_and_not_the_agent() -> None:
    """A disk that cannot be read is the node's trouble, and others' requests are answered."""
    begun: list[str] = []

    async def answer(request: VerifyRequest) -> str:
        begun.append(request.id)
        if request.id == "a":
            raise OSError("input/output error")
        return "answer"

    answering = Answering(VerifyRequest, answer, lambda: None)
    task = asyncio.create_task(answering.run())
    answering.ask([q("a"), q("b")])
    await until(lambda: bool(answering.answers) or task.done())
    answering.ask([q("a"), q("b"), q("c")])
    await until(lambda: len(answering.answers) == 2 or task.done())
    assert not task.done()
    assert ["a", "b", "c"] == begun, "it is not tried for ever"
    answering.ask([])
    answering.ask([q("a")])
    await until(lambda: len(begun) == 4)
    task.cancel()


async def test_end_of_the_agent_ends_the_work() -> None:
    work = Work()
    answering = Answering(VerifyRequest, work, lambda: None)
    task = asyncio.create_task(answering.run())
    answering.ask([q("a")])
    await until(lambda: work.begun == ["a"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert ["a"] == work.cancelled
    assert () == answering.answers
