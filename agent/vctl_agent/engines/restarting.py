"""Has the operator's command restart an engine that must serve nothing any more.

Once for each run of the engine, whatever comes of it: a command that fails, or is slow, is not
helped by a second one, and a person reads how it went in the node's report. It is noted before it
is begun, so an agent that dies meanwhile does not restart the engine again.
"""

import asyncio

import msgspec
import structlog

from vctl_agent.engines.port import Description
from vctl_agent.engines.watch import EngineWatch
from vctl_agent.hook import AnyHook
from vctl_agent.probed import Probed
from vctl_plans.errors import EngineError

_NAME = "restart"

_log = structlog.get_logger(__name__)


class Restarter:
    """Looks at every description whether the engine needs a restart.

    Args:
        hook: The operator's command; None: somebody else restarts engines.
        watch: The engine.
        begun: For which run of the engine the command was begun.
        node: This node's name, for the command.
        engine_url: The engine's address, for the command.
    """

    def __init__(
        self, hook: AnyHook | None, watch: EngineWatch, begun: Probed, *, node: str, engine_url: str
    ) -> None:
        self._hook = hook
        self._watch = watch
        self._begun = begun
        self._node = node
        self._engine_url = engine_url
        self._seen = asyncio.Event()

    def look(self) -> None:
        """Take it that the engine has changed."""
        self._seen.set()

    async def run(self) -> None:
        """Restart engines until cancelled."""
        while True:
            await self._seen.wait()
            self._seen.clear()
            engine = self._watch.latest
            if self._hook and engine and engine.needs_restart and not self._is_begun(engine):
                await self._restart(self._hook, engine)

    def _is_begun(self, engine: Description) -> bool:
        return self._begun.has(engine.incarnation, _NAME)

    async def _restart(self, hook: AnyHook, engine: Description) -> None:
        self._begun.add(engine.incarnation, _NAME)
        _log.warning("restarting the engine", incarnation=engine.incarnation, reason=engine.problem)
        try:
            await hook.run(_NAME, self._document(engine))
            outcome = "the restart hook was run"
        except EngineError as cause:
            outcome = cause.message
            _log.error("the engine was not restarted", cause=cause.message)
        self._watch.condemn(engine.incarnation, f"{engine.problem}; {outcome}")

    def _document(self, engine: Description) -> bytes:
        return msgspec.json.encode(
            {
                "event": _NAME,
                "node": self._node,
                "engine": engine.facts.kind,
                "engine_url": self._engine_url,
                "incarnation": engine.incarnation,
                "reason": engine.problem,
            }
        )
