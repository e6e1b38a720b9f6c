"""The front door: every client's request is read, looked over, and handed to be served, or refused.

The rule to keep: each request that came is counted out here, however it ends.
"""

import asyncio
import time

import structlog

from vctl_agent.gateway import answers, headers
from vctl_agent.gateway.accesslog import AccessLog
from vctl_agent.gateway.answers import Refused, unreadable
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.call import Call, named_adapters, read_call
from vctl_agent.gateway.choosing import Choosing
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.hop import is_hop
from vctl_agent.gateway.hopreceiver import HopReceiver
from vctl_agent.gateway.hopsender import HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.moved import Moved
from vctl_agent.gateway.passage import CLIENT_GONE, Passage
from vctl_agent.gateway.pins import Pins
from vctl_agent.gateway.serving import CHATS, Serving
from vctl_agent.gateway.stamp import Stamp
from vctl_agent.gateway.state import RouteAt
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.upstream import EngineBroke, Upstream
from vctl_agent.gateway.wire.message import Answer, BodyBroken, BodyTooLarge, Limits, Request
from vctl_agent.gateway.wire.server import Listener

FORWARDED = CHATS.keys() | {"/v1/completions", "/v1/embeddings"}
"""What of an engine can be reached; everything else, its administration above all, is 404."""

NOT_JSON = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Media types in which no request is taken."""

ENGINE_BROKE = 502
"""Counted for an answer that the engine broke off; the client got its beginning, then a cut."""

PASSED_THROUGH = "(passed through)"
"""The label of models that are no service; no service can have this name."""

_log = structlog.get_logger()


class Proxy:
    """Answers clients.

    Args:
        live: What requests are decided by.
        references: Who holds what.
        upstream: The engine.
        metrics: Where ends are counted.
        counting: Where ends are counted by release, for guardrails.
        barrier: Where requests wait while their service switches.
        receiver: Lets peers' requests in.
        sender: Passes requests to peers.
        max_body_bytes: The largest body that is read.
        has_passthrough: Whether models that are no service are passed on unchanged.
        access_log: Gets a line for each request; None: there is no such log.
        pins: Reads and makes pins; None: there are none.
        has_cookie: Whether pins are given as a cookie as well.
        tenancy: Tells whose a request is; None: nobody is asked for a key.
        moved: Who was answered by what while a service moves.
    """

    def __init__(
        self,
        live: Live,
        references: References,
        upstream: Upstream,
        metrics: Metrics,
        *,
        counting: Counting,
        barrier: Barrier,
        receiver: HopReceiver,
        sender: HopSender,
        max_body_bytes: int,
        has_passthrough: bool = False,
        access_log: AccessLog | None = None,
        pins: Pins | None = None,
        has_cookie: bool = False,
        tenancy: Tenancy | None = None,
        moved: Moved | None = None,
    ) -> None:
        self.open = 0  # requests that have not ended, of any kind
        self.idle = asyncio.Event()  # set while none is open
        self.idle.set()
        self._live = live
        self._metrics = metrics
        self._barrier = barrier
        self._receiver = receiver
        self._max_body_bytes = max_body_bytes
        self._has_passthrough = has_passthrough
        self._access_log = access_log
        self._tenancy = tenancy or Tenancy()
        self._stamp = Stamp(live, has_cookie=has_cookie)
        self._serving = Serving(
            live,
            references,
            upstream,
            counting=counting,
            barrier=barrier,
            receiver=receiver,
            sender=sender,
            choosing=Choosing(live, pins, self._tenancy, moved or Moved()),
            stamp=self._stamp,
            tenancy=self._tenancy,
        )

    @property
    def is_draining(self) -> bool:
        """Whether answers close their connections."""
        return self._stamp.is_draining

    @is_draining.setter
    def is_draining(self, is_draining: bool) -> None:
        self._stamp.is_draining = is_draining

    def listener(self) -> Listener:
        """Return the listener for clients; a client that goes away cancels its request."""
        return Listener(self.answer, unreadable, Limits(max_body_bytes=self._max_body_bytes))

    async def answer(self, request: Request) -> Answer:
        """Answer one request, count it, and note how it ended, whatever the end."""
        request_id = headers.request_id(request.request_id)
        passage = Passage(request_id, headers.id_line(request_id), time.monotonic())
        if not self.open:
            self.idle.clear()
        self.open += 1
        try:
            if request.path in FORWARDED and request.method == "POST":
                return await self._serve(request, passage)
            return self._other(request, passage)
        except Refused as refused:
            return self._stamped(refused.answer(), passage)
        except EngineBroke as cause:
            passage.status = ENGINE_BROKE
            _log.warning("engine broke off", request_id=passage.request_id, error=str(cause))
            return _cut(request)
        except ConnectionError:
            passage.status = CLIENT_GONE
            return _cut(request)
        except asyncio.CancelledError:
            passage.status = CLIENT_GONE
            raise
        except Exception:  # noqa: BLE001  a bug costs one request, not its connection
            _log.exception("request failed by a bug", request_id=passage.request_id)
            failed = Refused(500, "the gateway failed", code="internal_error")
            return self._stamped(failed.answer(), passage)
        finally:
            self._leave(passage)

    def _other(self, request: Request, passage: Passage) -> Answer:
        """Answer what no engine is asked for."""
        path = request.path
        if path in FORWARDED:
            _check_method(request, "POST")
        if path == "/v1/models":
            _check_method(request, "GET")
            passage.tenant = self._tenancy.admit(request.headers)
            listed = answers.models(self._offered(passage.tenant))
            return self._stamped(listed, passage)
        if path == "/health":
            return self._stamped(Answer(), passage)
        raise Refused(404, f"there is no {path} here", code="not_found")

    async def _serve(self, request: Request, passage: Passage) -> Answer:
        _check_form(request)
        is_peers = is_hop(request.head)  # which is proved or refused once its body is here
        passage.tenant = "" if is_peers else self._tenancy.admit(request.headers)
        body = request.taken() if request.has_come else await self._read_body(request)
        hop = self._receiver.read(request, body, passage.leg)
        if hop is not None:
            return await self._serving.serve_hop(request, passage, hop, body)
        call = read_call(body)
        known = self._live.acted.known
        at = known.routes.get(call.model)
        if at is not None and not self._tenancy.can_reach(passage.tenant, call.model, known):
            raise answers.no_model(call.model)
        if at is not None and at.is_direct:
            raise answers.no_model(call.model, "its clients call the engines themselves")
        if at is not None and self._live.is_isolated:
            message = "this gateway is cut off, and may not serve by what it knew before"
            raise Refused(503, message, code="isolated")
        while at is not None:
            passage.service, passage.route = call.model, at.revision
            if self._barrier.admits(at) or self._live.overrides.get(call.model):
                return await self._serving.serve(request, passage, call, at)
            at = await self._held(call.model, passage)
        passage.route = 0
        if not self._is_passed_through(call, passage.tenant):
            raise answers.no_model(call.model)
        passage.service = PASSED_THROUGH
        unmanaged = self._tenancy.unmanaged_body(call, passage.tenant)
        return await self._serving.ask(request, passage, unmanaged, None)

    async def _held(self, service: str, passage: Passage) -> RouteAt | None:
        """Return the service's route once no barrier is before it; choose before any await."""
        began = time.monotonic()
        try:
            return await self._barrier.wait(service)
        finally:
            passage.held_s += time.monotonic() - began

    def _offered(self, tenant: str) -> list[str]:
        """Return the services that a request of the tenant can reach here."""
        known = self._live.acted.known
        return [s for s in known.offered() if self._tenancy.can_reach(tenant, s, known)]

    async def _read_body(self, request: Request) -> bytes:
        try:
            return await request.read()
        except BodyTooLarge as cause:
            message = f"the body is larger than {self._max_body_bytes} bytes"
            raise Refused(413, message, code="body_too_large") from cause
        except BodyBroken as cause:
            message = f"the body cannot be read: {cause}"
            raise Refused(400, message, code="invalid_body") from cause

    def _is_passed_through(self, call: Call, tenant: str) -> bool:
        """Whether what is asked for is nobody's: not even the engine's own name of a release."""
        if not self._has_passthrough:
            return False
        acted = self._live.acted
        engine_names = {ready.model for ready in acted.agent.ready} if acted.agent else set()
        return not any(
            name in engine_names
            or name.partition("@")[0] in acted.known.routes
            or self._tenancy.is_anothers(tenant, name.partition("@")[0], acted.known)
            for name in named_adapters(call)
        )

    def _stamped(self, response: Answer, passage: Passage) -> Answer:
        self._stamp.put(response, passage)
        return response

    def _leave(self, passage: Passage) -> None:
        self.open -= 1
        if not self.open:
            self.idle.set()
        seconds = time.monotonic() - passage.started_s
        self._metrics.count(passage.service, passage.release, passage.status, seconds)
        if self._access_log:
            self._access_log.note(passage, seconds)


def _check_method(request: Request, method: str) -> None:
    if request.method != method:
        raise Refused(405, f"{request.path} takes {method}", code="method_not_allowed")


def _check_form(request: Request) -> None:
    """Refuse what is not sent as JSON, as engines do.

    What a page of any site may have a browser send without asking (the Fetch standard's simple
    types) must not reach a gateway on that browser's own machine. A type that says nothing passes.
    """
    if request.head.content_type in NOT_JSON:
        message = f"{request.head.content_type} is not taken: send application/json"
        raise Refused(415, message, code="unsupported_media_type")
    if request.head.is_encoded and request.headers["content-encoding"].lower() != "identity":
        raise Refused(415, "a body must not be compressed", code="unsupported_media_type")


def _cut(request: Request) -> Answer:
    """Break the client's connection; nobody is sent the answer."""
    request.abort()
    return Answer(is_begun=True)
