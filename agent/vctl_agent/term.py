"""What a process does while elected: it conducts, sends alerts, judges routes and sums up.

Only conducting may end the term. The rest waits, tries again and is never waited for.
"""

import asyncio
from collections.abc import Sequence

from vctl_agent.admin import ConductorMetrics
from vctl_agent.alerting.outbox import Outbox
from vctl_agent.alerting.webhooks import Webhook
from vctl_agent.conductor import Conductor
from vctl_agent.convergence import Convergence
from vctl_agent.crashpoints import Crashpoints
from vctl_agent.prometheus import Where, opened
from vctl_agent.queries import Source
from vctl_agent.summaries import Summaries
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.port import Store


class Office:
    """Serves terms, one after the other; `serve` is what `election.stand` calls.

    Args:
        store: The store.
        keys: The fleet's keys.
        webhooks: Where alerts go.
        prometheus: Where the queries of guardrails are answered.
        metrics: What the process counts.
        crashpoints: For tests.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        webhooks: Sequence[Webhook],
        metrics: ConductorMetrics,
        crashpoints: Crashpoints,
        prometheus: Where | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._webhooks = webhooks
        self._prometheus = prometheus
        self._metrics = metrics
        self._crashpoints = crashpoints

    async def serve(self, fence: int) -> None:
        """Serve one term, fenced by *fence*, until cancelled or until a watch ends for good."""
        async with opened(self._prometheus) as source:
            await self._serve(fence, source)

    async def _serve(self, fence: int, source: Source | None) -> None:
        store, keys, metrics = self._store, self._keys, self._metrics
        outbox = Outbox(
            store,
            keys,
            fence=fence,
            webhooks=self._webhooks,
            metrics=metrics,
            crashpoints=self._crashpoints,
        )
        convergence = Convergence(store, keys, fence=fence, metrics=metrics)
        summaries = Summaries(store, keys, fence=fence)

        def look(fleet: Fleet) -> None:
            convergence.look(fleet)
            summaries.look(fleet)

        conductor = Conductor(
            store,
            keys,
            fence=fence,
            crashpoints=self._crashpoints,
            on_look=look,
            source=source,
        )
        metrics.is_conductor.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(conductor.run())
                group.create_task(outbox.run())
                group.create_task(convergence.run())
                group.create_task(summaries.run())
        finally:
            metrics.is_conductor.set(0)
            metrics.unconverged.clear()  # the next conductor's to say
