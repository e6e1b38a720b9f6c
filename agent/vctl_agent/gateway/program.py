"""``vctl-gateway``: settings, wiring, signals.

The order of the start: what is on disk serves first, then the agent can reach us, then clients, and
etcd last, since it may be away. The order of the end: readiness says no, requests finish (up to the
grace time), clients' connections close, and the agent hears the counts until the last one is 0.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import structlog
import uvloop

from vctl_agent.acceptance import Acceptance
from vctl_agent.gateway import breakglass, hashkey, memory
from vctl_agent.gateway.accesslog import AccessLog
from vctl_agent.gateway.admin import Admin, Readiness, readiness
from vctl_agent.gateway.agentlink import AgentLink, listening_socket
from vctl_agent.gateway.apikeys import ApiKeys
from vctl_agent.gateway.background import begun, cancelled
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.breakglass import WORD, Overrides
from vctl_agent.gateway.control import Control
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.handover import Inheritance, control_path, merged, take_over
from vctl_agent.gateway.hopreceiver import HopReceiver
from vctl_agent.gateway.hopsender import HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.listening import Served, announce, serving
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.logwriter import LogFile, Writer
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.moved import Moved
from vctl_agent.gateway.persist import Saver, load
from vctl_agent.gateway.pins import Pins
from vctl_agent.gateway.proxy import Proxy
from vctl_agent.gateway.settings import Settings, read_settings
from vctl_agent.gateway.succession import Succession
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.upstream import Upstream
from vctl_agent.gateway.watch import OpenStore, keep_following, open_etcd
from vctl_agent.local import GatewayState, GatewayStatistics
from vctl_agent.log import configure
from vctl_plans.errors import SettingsError, VctlError
from vctl_plans.keys import Keys

_FAILED, _USAGE, _BUG = 1, 2, 70
_log = structlog.get_logger()


class Addresses(msgspec.Struct, frozen=True):
    """Where the gateway listens, with the ports that port 0 became."""

    clients: str
    admin: str


class Gateway:
    """A gateway's parts, wired."""

    def __init__(
        self,
        settings: Settings,
        open_store: OpenStore,
        *,
        inheritance: Inheritance | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._inheritance = inheritance
        self._open_store = open_store
        self._boot_id = uuid.uuid4().hex
        self._keys = Keys(settings.fleet, settings.prefix)
        self._acceptance = Acceptance(self._keys, settings.state / "accepted.json")
        self.live = Live(
            load(settings.state, settings.fleet),
            prefix=self._keys.services,
            clock=time.monotonic,
            engine_url=settings.engine,
            sender=settings.node if settings.fleet_key else "",
            isolation_s=settings.isolation_s,
        )
        self.link = AgentLink(
            self.state,
            self.live.accept,
            statistics=self.statistics,
            interval_s=self._report_interval_s,
        )
        self.references = References(self.link.ring)
        self.barrier = Barrier(self.live)
        self._metrics = Metrics(self.live, self.references, self.barrier)
        self.counting = Counting(self._boot_id, self._metrics)
        self._watch_services()
        self._moved = Moved()
        self.live.bells += [self.link.ring, self._watch_services, self._keep_moved]
        keys = settings.api_keys
        self.api_keys = ApiKeys(keys) if keys else None
        self._tenancy = Tenancy(self.api_keys, engine_key=settings.engine_key)
        self._saver = Saver(self.live, settings.state, settings.fleet)
        self.succession = Succession(self.live, self._saver, self.link, self.references)
        self._overrides = Overrides(self.live, settings.state)
        self._overrides.open()

    def state(self) -> GatewayState:
        """Return what the agent is told."""
        acted = self.live.acknowledged
        return GatewayState(
            boot_id=self._boot_id,
            routes=acted.known.route_revisions(),
            in_flight=merged(self.references.listing(), self.succession.inherited),
            is_connected=self.live.is_connected,
            accepted=acted.agent.ready if acted.agent else (),
            overrides=self.live.overrides,
            can_forward=self.live.can_forward,
            checks_keys=self._tenancy.checks_keys,
            pins=self._moved.held(),
        )

    def _keep_moved(self) -> None:
        routes = self.live.acted.known.routes
        self._moved.keep({service: at.route.candidate for service, at in routes.items()})

    def statistics(self) -> GatewayStatistics:
        """Return what the agent is told of the watched services."""
        return self.counting.told()

    def _watch_services(self) -> None:
        agent = self.live.acted.agent
        self.counting.watch(agent.watched if agent else ())

    def _report_interval_s(self) -> float:
        agent = self.live.acted.agent
        return agent.report_interval_s if agent and agent.watched else 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Addresses]:
        """Serve inside the block; on leaving it, drain and stop."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            inherited = self._inheritance
            if inherited is None:
                await self.link.start(listening_socket(settings.socket))
            stack.push_async_callback(self.link.close)
            upstream = Upstream(settings.engine_timeout_s)
            stack.callback(upstream.close)
            access_log = self._access_log()
            if access_log:
                stack.callback(access_log.flush)
            proxy = self._proxy(upstream, access_log)
            for name, run in (
                ("saver", self._saver.run),
                ("watch", self._watch),
                ("upstream", upstream.sweep),
                *([("API keys", self.api_keys.run)] if self.api_keys else []),
            ):
                stack.push_async_callback(cancelled, begun(name, run))
            probes = Admin(lambda: self._readiness(proxy), self._metrics).listener()
            where = inherited.admin if inherited else settings.admin
            admin = await stack.enter_async_context(serving(probes, where))
            announce(settings.admin_port_file, admin.at)
            stack.push_async_callback(self._saver.save)
            listener = proxy.listener()
            clients = await stack.enter_async_context(
                serving(
                    listener,
                    inherited.clients if inherited else settings.listen,
                    partial(self.succession.drained, proxy, listener, grace_s=settings.grace_s),
                )
            )
            asked = partial(self._asked, clients=clients, admin=admin)
            control = Control(control_path(settings.state), asked)
            control.open()
            announce(settings.port_file, clients.at)
            stack.push_async_callback(cancelled, begun("control", control.run))
            if inherited:
                inherit = partial(self.succession.inherit, inherited, settings.socket)
                stack.push_async_callback(cancelled, begun("inheritance", inherit))
            _log.info("gateway serves", clients=clients.at, admin=admin.at, boot_id=self._boot_id)
            yield Addresses(clients.at, admin.at)

    def _proxy(self, upstream: Upstream, access_log: AccessLog | None) -> Proxy:
        settings, tenancy = self._settings, self._tenancy
        fleet, key = settings.fleet, settings.fleet_key
        if key is None:
            _log.info("hops and pins are off: there is no fleet key", setting="--fleet-key-file")
        receiver = HopReceiver(self.live, self._metrics, fleet=fleet, key=key, tenancy=tenancy)
        sender = HopSender(
            self.live,
            upstream,
            self._metrics,
            fleet=fleet,
            node=settings.node,
            key=key,
            tenancy=tenancy,
        )
        return Proxy(
            self.live,
            self.references,
            upstream,
            self._metrics,
            counting=self.counting,
            barrier=self.barrier,
            receiver=receiver,
            sender=sender,
            max_body_bytes=settings.max_body_bytes,
            has_passthrough=settings.has_passthrough,
            access_log=access_log,
            pins=self._pins(),
            has_cookie=settings.has_session_cookie,
            tenancy=tenancy,
            moved=self._moved,
        )

    async def _asked(
        self, asked: str, connection: socket.socket, *, clients: Served, admin: Served
    ) -> None:
        """Do what the control socket asks."""
        if asked.startswith(WORD):
            said = self._overrides.act(asked.removeprefix(WORD))
            await asyncio.get_running_loop().sock_sendall(connection, said)
            return
        if asked == "take over":
            await self.succession.hand_over(connection, clients, admin)

    def _pins(self) -> Pins | None:
        settings = self._settings
        if settings.fleet_key is None:
            return None

        return Pins(
            settings.fleet_key,
            fleet=settings.fleet,
            digest=lambda service, number: self.live.acted.known.digest((service, number)),
        )

    def _access_log(self) -> AccessLog | None:
        settings = self._settings
        if not settings.has_access_log:
            return None
        return AccessLog(
            self._writer,
            on_drop=self._metrics.log_dropped,
            fleet=settings.fleet,
            node=settings.node,
        )

    async def _watch(self) -> None:
        await keep_following(self.live, self._open_store, self._keys, self._acceptance)

    def _readiness(self, proxy: Proxy) -> Readiness:
        return readiness(
            self.live,
            has_passthrough=self._settings.has_passthrough,
            is_draining=proxy.is_draining,
            tenancy=self._tenancy,
        )


async def serve(settings: Settings, open_store: OpenStore, writer: Writer | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal cuts the drain short."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    main_task = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and main_task is not None:
            main_task.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    inheritance = take_over(settings.state) if settings.takes_over else None
    if settings.takes_over and inheritance is None:
        _log.info("no gateway runs here whose place could be taken")
    gateway = Gateway(settings, open_store, inheritance=inheritance, writer=writer)
    memory.settle(loop)
    if gateway.api_keys:
        loop.add_signal_handler(signal.SIGHUP, gateway.api_keys.reread)
    async with gateway.running():
        waits = [
            asyncio.ensure_future(each.wait()) for each in (stop, gateway.succession.handed_over)
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


def main() -> int:
    """Run ``vctl-gateway``; return its exit code."""
    if sys.argv[1:2] == ["override"]:
        return breakglass.main(sys.argv[2:], os.environ)
    if sys.argv[1:2] == ["hash-key"]:
        return hashkey.main(sys.argv[2:])
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as cause:
        lines = [f"vctl-gateway: {problem}" for problem in cause.problems]
        sys.stderr.write("\n".join([*lines, cause.hint, ""]))
        return _USAGE
    writer = None if sys.stderr.isatty() else Writer(sys.stderr)
    log_file = LogFile(writer) if writer else None
    configure(file=log_file, fleet=settings.fleet, node=settings.node)
    try:
        return _run(settings, writer)
    finally:
        if writer:
            writer.close()


def _run(settings: Settings, writer: Writer | None) -> int:
    try:
        settings.state.mkdir(parents=True, exist_ok=True)
        uvloop.run(serve(settings, open_etcd(settings.store), writer))
    except (VctlError, OSError) as cause:
        _log.error("gateway cannot serve", error=str(cause), hint=getattr(cause, "hint", ""))
        return _FAILED
    except asyncio.CancelledError:
        _log.warning("drain cut short by a second signal")
    except Exception:  # noqa: BLE001  the top of the program
        _log.exception("gateway failed by a bug")
        return _BUG
    return 0
