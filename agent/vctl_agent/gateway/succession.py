"""How a gateway ends, and how another takes its place; `handover` has the order of the steps.

Whoever ends says no to probes first, then lets requests finish, up to the grace time. One whose
place is taken hands its sockets on as well, and tells what it still has in flight until that is
nothing, so that no release is unloaded under a request of either.
"""

import asyncio
import contextlib
import socket
from pathlib import Path

import structlog

from vctl_agent.gateway.agentlink import AgentLink, listening_socket
from vctl_agent.gateway.background import begun, cancelled
from vctl_agent.gateway.handover import LINGER_S, TELL_S, Estate, Inheritance
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.listening import Served
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.persist import Saver
from vctl_agent.gateway.proxy import Proxy
from vctl_agent.gateway.wire.server import Listener
from vctl_agent.local import InFlight
from vctl_plans.errors import VctlError

_log = structlog.get_logger()


class Succession:
    """Ends a gateway, with an heir or without one, and takes on what one before it leaves.

    Args:
        live: What the heir serves by, once it is saved.
        saver: Saves it.
        link: Where the agent hears the counts.
        references: The counts.
    """

    def __init__(self, live: Live, saver: Saver, link: AgentLink, references: References) -> None:
        self.handed_over = asyncio.Event()  # another process serves in our place
        self.inherited: tuple[InFlight, ...] = ()  # in flight in the process before this one
        self._live = live
        self._saver = saver
        self._link = link
        self._references = references
        self._estate: Estate | None = None

    async def hand_over(self, connection: socket.socket, clients: Served, admin: Served) -> None:
        """Let the process at the other end of *connection* serve in our place.

        One that never says that it serves changes nothing.
        """
        if self.handed_over.is_set():
            return
        self._live.is_frozen = True
        await self._saver.save()
        estate = Estate(connection.dup())
        if not await estate.offer(clients.fileno(), admin.fileno()):
            self._live.is_frozen = False
            return
        self._saver.is_stopped = True
        for served in (clients, admin):
            served.server.close()
        self._estate = estate
        self.handed_over.set()

    async def inherit(self, inheritance: Inheritance, agents_socket: Path) -> None:
        """Take the agent's socket from the process before this one, and hear what it still does.

        Args:
            inheritance: What that process has handed on.
            agents_socket: Where to listen for the agent, should that process end before it is done.
        """
        try:
            listener = await inheritance.agents_socket()
        except (VctlError, OSError) as cause:
            _log.warning("the former gateway ended early", error=str(cause))
            await self._link.start(listening_socket(agents_socket))
            return
        await self._link.start(listener)
        async for counts in inheritance.counts():
            self.inherited = counts
            self._link.ring()
        _log.info("the former gateway has ended")

    async def drained(self, proxy: Proxy, listener: Listener, *, grace_s: float) -> None:
        """Return when no request is open, or the grace time has passed."""
        proxy.is_draining = True
        _log.info("draining", open=proxy.open, grace_s=grace_s)
        estate = self._estate
        if estate is None:
            listener.close_idle()
            await _until_idle(proxy, grace_s)
            return
        await asyncio.sleep(LINGER_S)
        listener.close_idle()
        estate.hand_on(self._link.fileno())
        await self._link.close()
        telling = begun("telling", lambda: self._tell(estate))
        try:
            await _until_idle(proxy, grace_s)
        finally:
            await cancelled(telling)

    async def _tell(self, estate: Estate) -> None:
        while True:
            await estate.tell(self._references.listing())
            await asyncio.sleep(TELL_S)


async def _until_idle(proxy: Proxy, grace_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await proxy.idle.wait()
    _log.info("drained", cut=proxy.open)
