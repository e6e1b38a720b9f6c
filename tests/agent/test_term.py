"""A term of office: decisions, and what goes with them and never holds them up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.agent.test_conductor import KEYS, Stage
from tests.alerting.support import receiving, until
from vctl_agent.admin import Metrics
from vctl_agent.alerting.webhooks import Webhook
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.term import Office
from vctl_plans.phase import RolloutPhase


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.elect()
    yield made
    await made.store.close()


@asynccontextmanager
async def term(stage: Stage, webhooks: Sequence[Webhook]) -> AsyncIterator[Metrics]:
    metrics = Metrics()
    office = Office(
        stage.store, KEYS, webhooks=webhooks, metrics=metrics, crashpoints=Crashpoints()
    )
    task = asyncio.create_task(office.serve(stage.fence))
    try:
        yield metrics
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_webhook_that_hangs_holds_up_no_decision(stage: Stage) -> None:
    """A rollout's failure hangs at the webhook; the next rollout converges meanwhile."""
    async with receiving(None) as receiver, term(stage, [receiver.webhook()]):
        await stage.begin()
        await _fail(stage)
        await until(lambda: receiver.ids == ["r1-1"])
        await stage.begin_again()
        for phase in (RolloutPhase.SHIFTING, RolloutPhase.SETTLING, RolloutPhase.CONVERGED):
            for node in ("n1", "n2"):
                await stage.report(node, attempt="r2")
            await stage.until(lambda now, p=phase: now is p)  # type: ignore[misc]
    assert [KEYS.alert("r1-1")] == [e.key for e in (await stage.store.list(KEYS.alerts)).entries]


async def test_alert_of_a_decision_reaches_the_webhook(stage: Stage) -> None:
    """Told once the decision stands in the store, and then forgotten."""
    async with receiving() as receiver, term(stage, [receiver.webhook()]):
        await stage.begin()
        await _fail(stage)
        await until(lambda: bool(receiver.got))
        async with asyncio.timeout(5):
            while (await stage.store.list(KEYS.alerts)).entries:
                await asyncio.sleep(0.005)
    (said,) = receiver.got
    assert ("r1-1", "P1", "failed") == (said["id"], said["severity"], said["phase"])
    assert said["sentence"].startswith("release 1 was refused by n1: no room")


async def test_figures_of_a_term_end_with_it(stage: Stage) -> None:
    """Who conducts no more says nothing of the fleet."""
    async with term(stage, []) as metrics:
        await until(lambda: sample(metrics, "vctl_agent_is_conductor") == 1)
        await stage.begin()
        await stage.report("n1")
        await stage.report("n2")
        await stage.until(lambda now: now is RolloutPhase.SHIFTING)
        await until(lambda: sample(metrics, "vctl_unconverged_nodes", service="support") == 2)
    assert 0 == sample(metrics, "vctl_agent_is_conductor")
    assert sample(metrics, "vctl_unconverged_nodes", service="support") is None


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def _fail(stage: Stage) -> None:
    await stage.report("n1", refusal="no room")
    await stage.until(lambda now: now is RolloutPhase.FAILED)
