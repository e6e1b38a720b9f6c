"""The path of every request: read, choose, take a reference, check, ask the engine, relay.

The order of the middle two is the rule that keeps releases from being unloaded under a request: the
reference is taken first and the release checked after, and whoever takes a release out of the ready
set looks at the count after that. One of the two sees the other.
"""

import asyncio
import time

import msgspec
import structlog

from vctl_agent.gateway import answers, headers
from vctl_agent.gateway.accesslog import AccessLog
from vctl_agent.gateway.answers import Elsewhere, Refused, unreadable
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.call import Call, engine_body, named_adapters, read_asked, read_call
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.hop import HOP_HEADER, Hop, is_hop, path_of
from vctl_agent.gateway.hopreceiver import HopReceiver
from vctl_agent.gateway.hopsender import HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.metrics import Metrics
from vctl_agent.gateway.observation import Counted, Observation
from vctl_agent.gateway.passage import CLIENT_GONE, Passage
from vctl_agent.gateway.pins import COOKIE, Moved, Pin, Pins
from vctl_agent.gateway.rewrite import ModelName
from vctl_agent.gateway.state import RouteAt
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.upstream import EngineBroke, Upstream, relay
from vctl_agent.gateway.wire.server import (
    Answer,
    BodyBroken,
    BodyTooLarge,
    Limits,
    Listener,
    Request,
)
from vctl_plans.routing import (
    RELEASE_HEADER,
    SESSION_HEADER,
    VECTOR_HEADER,
    Choice,
    Refusal,
    Why,
    choose,
)

CHATS = frozenset({"/v1/chat/completions", "/tokenize"})
"""What a release's prompt is applied to: chats, and what says how long one is."""

FORWARDED = CHATS | {
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
}
"""What of an engine can be reached; everything else, its administration above all, is 404."""

ENGINE_BROKE = 502
"""Counted for an answer that the engine broke off; the client got its beginning, then a cut."""

NOT_FOUND = 404
"""What an engine answers when it does not hold the model that it is asked for."""

SERVER = "vctl-gateway"
"""What stands in place of the names and versions of the engine's server and of our library."""

EVERYBODY = Tenancy()
"""Asks nobody for a key."""

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
        tenancy: Tells whose a request is, and what it may reach.
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
        tenancy: Tenancy = EVERYBODY,
    ) -> None:
        self.open = 0  # requests that have not ended, of any kind
        self.idle = asyncio.Event()  # set while none is open
        self.idle.set()
        self.is_draining = False  # answers close their connections
        self._live = live
        self._references = references
        self._upstream = upstream
        self._metrics = metrics
        self._counting = counting
        self._barrier = barrier
        self._receiver = receiver
        self._sender = sender
        self._max_body_bytes = max_body_bytes
        self._has_passthrough = has_passthrough
        self._access_log = access_log
        self._pins = pins
        self._has_cookie = has_cookie
        self._tenancy = tenancy
        self._moved = Moved()

    def listener(self) -> Listener:
        """Return the listener for clients; a client that goes away cancels its request."""
        return Listener(self.answer, unreadable, Limits(max_body_bytes=self._max_body_bytes))

    async def answer(self, request: Request) -> Answer:
        """Answer one request, count it, and note how it ended, whatever the end."""
        passage = Passage(headers.request_id(request.headers), time.monotonic())
        self.open += 1
        self.idle.clear()
        try:
            return await self._dispatch(request, passage)
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

    async def _dispatch(self, request: Request, passage: Passage) -> Answer:
        path = request.path
        if path in FORWARDED:
            _check_method(request, "POST")
            return await self._serve(request, passage)
        if path == "/v1/models":
            _check_method(request, "GET")
            passage.tenant = self._tenancy.admit(request.headers)
            listed = answers.models(self._offered(passage.tenant))
            return self._stamped(listed, passage)
        if path == "/health":
            return self._stamped(Answer(), passage)
        raise Refused(404, f"there is no {path} here", code="not_found")

    async def _serve(self, request: Request, passage: Passage) -> Answer:
        is_peers = is_hop(request.headers)  # which is proved or refused once its body is here
        passage.tenant = "" if is_peers else self._tenancy.admit(request.headers)
        body = await self._read_body(request)
        hop = self._receiver.read(request, body, passage.leg)
        if hop is not None:
            return await self._serve_hop(request, passage, hop, body)
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
                return await self._serve_chosen(request, passage, call, at)
            at = await self._held(call.model, passage)
        passage.route = 0
        if not self._is_passed_through(call, passage.tenant):
            raise answers.no_model(call.model)
        passage.service = PASSED_THROUGH
        unmanaged = self._tenancy.unmanaged_body(call, passage.tenant)
        return await self._ask(request, passage, unmanaged, None)

    async def _held(self, service: str, passage: Passage) -> RouteAt | None:
        """Return the service's route once no barrier is before it; choose before any await."""
        began = time.monotonic()
        try:
            return await self._barrier.wait(service)
        finally:
            passage.held_s += time.monotonic() - began

    async def _serve_chosen(
        self, request: Request, passage: Passage, call: Call, at: RouteAt
    ) -> Answer:
        """Serve; where the release was ready nowhere, choose once more if more is known by now.

        A node leaves a release once every gateway has acted on the route without it. A request that
        was chosen just before may come to it after.
        """
        known = self._live.acted.known
        try:
            return await self._serve_managed(request, passage, call, at)
        except Elsewhere:
            newer = self._live.acted.known.routes.get(call.model)
            is_same = self._live.acted.known is known
            if is_same or newer is None or not self._barrier.admits(newer):
                raise
            passage.route = newer.revision
            return await self._serve_managed(request, passage, call, newer)

    async def _serve_managed(
        self, request: Request, passage: Passage, call: Call, at: RouteAt
    ) -> Answer:
        """Serve a service's request by the release chosen for it, or refuse; never by another."""
        live = self._live
        pin = self._pins.read(call.model, request.headers) if self._pins and at.is_split else None
        asked = read_asked(
            call,
            self._tenancy.grouped(request.headers, passage.tenant),
            passage.request_id,
            named=live.named_headers,
            is_split=at.is_split,
            pin=pin,
        )
        if at.route.candidate and self._moved.has(call.model, asked.key, at.route.candidate):
            asked = msgspec.structs.replace(asked, has_moved=True)
        choice = self._glass(call.model) or choose(at.route, asked, live.acted.known.groups)
        if isinstance(choice, Refusal):
            raise Refused(choice.status, choice.reason, code="release_not_served")
        passage.release, passage.why, passage.group = choice.release, choice.why, choice.group
        if at.route.candidate and choice.why is not Why.BREAK_GLASS:
            self._moved.note(call.model, asked.key, choice.release)
        if self._pins and choice.release in at.route.pinnable:
            passage.pin = self._pins.make(call.model, Pin(choice.release, asked.key))
        release_id = (call.model, choice.release)
        counted = Counted(*release_id, live.acted.known.digest(release_id), at.revision)
        # Counted once, where it was chosen: whoever serves a hop counts nothing for guardrails.
        with self._counting.observe(counted) as seen:
            try:
                return await self._serve_here(request, passage, call, seen)
            except Elsewhere:
                response = await self._pass_on(request, passage, call, seen)
                if response is None:
                    raise
                return response

    def _glass(self, service: str) -> Choice | None:
        """Return what root has said for this node, if anything."""
        release = self._live.overridden(service) if self._live.overrides else 0
        return Choice(release, Why.BREAK_GLASS) if release else None

    async def _serve_here(
        self, request: Request, passage: Passage, call: Call, seen: Observation
    ) -> Answer:
        release_id = (call.model, passage.release)
        message = f"release {passage.release} of {call.model} is not ready on this node"
        if release_id not in self._live.targets:  # so no reference is taken, and nobody told of it
            raise Elsewhere(message, code="release_not_ready")
        with self._references.hold(release_id):
            target = self._live.targets.get(release_id)
            if target is None:
                raise Elsewhere(message, code="release_not_ready")
            name = ModelName(target.model, call.model, seen.read)
            body = engine_body(call, target, is_chat=request.path in CHATS)
            response = await self._ask(request, passage, body, name, seen=seen)
            if response.status == NOT_FOUND and not response.is_begun:
                # The engine has started again and holds nothing, and the agent has yet to see it.
                raise Elsewhere(message, code="release_not_ready", instead=response)
            return response

    async def _pass_on(
        self, request: Request, passage: Passage, call: Call, seen: Observation
    ) -> Answer | None:
        hop = self._sender.hop(
            call.model,
            passage.release,
            route=passage.route,
            request_id=passage.request_id,
            tenant=passage.tenant,
        )
        return await self._sender.pass_on(
            request,
            call.body,
            hop,
            leg=passage.leg,
            stamp=lambda response: self._stamp(response, passage),
            seen=seen,
        )

    async def _serve_hop(self, request: Request, passage: Passage, hop: Hop, body: bytes) -> Answer:
        """Serve the release that the sender chose, or refuse; never choose, never pass it on."""
        passage.service, passage.release, passage.route = hop.service, hop.number, hop.route
        release_id = (hop.service, hop.number)
        with self._receiver.answering(hop, passage.leg), self._references.hold(release_id):
            target = self._receiver.target(hop)
            name = ModelName(target.model, hop.service)
            asked = engine_body(read_call(body), target, is_chat=request.path in CHATS)
            return await self._ask(request, passage, asked, name)

    async def _ask(
        self,
        request: Request,
        passage: Passage,
        body: bytes,
        name: ModelName | None,
        *,
        seen: Observation | None = None,
    ) -> Answer:
        base = self._live.engine_url
        if not base:
            raise Elsewhere("no engine is known yet", code="engine_unavailable")
        answer = await self._upstream.ask(
            base + path_of(request),
            body,
            self._tenancy.for_engine(headers.for_engine(request.headers, passage.request_id)),
        )
        try:
            return await relay(
                answer,
                request,
                name=name,
                stamp=lambda response: self._stamp(response, passage),
                seen=seen,
            )
        finally:
            answer.close()

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

    def _stamp(self, response: Answer, passage: Passage) -> None:
        passage.status = response.status
        response.headers["Server"] = SERVER
        response.headers[headers.REQUEST_ID_HEADER] = passage.request_id
        if passage.route:
            response.headers[headers.ROUTE_HEADER] = str(passage.route)
        if passage.release:
            response.headers[RELEASE_HEADER] = str(passage.release)
        if passage.pin:
            response.headers[SESSION_HEADER] = passage.pin
            if self._has_cookie:
                kept = f"{COOKIE}={passage.pin}; Path=/; HttpOnly; SameSite=Lax"
                response.headers.add("Set-Cookie", kept)
        if passage.leg.mark:
            response.headers[HOP_HEADER] = passage.leg.mark
        known = self._live.acted.known.releases.get((passage.service, passage.release))
        if known:
            response.headers[VECTOR_HEADER] = known.release.vector_text
        if self.is_draining:
            response.closes = True

    def _stamped(self, response: Answer, passage: Passage) -> Answer:
        self._stamp(response, passage)
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


def _cut(request: Request) -> Answer:
    """Break the client's connection; nobody is sent the answer."""
    request.abort()
    return Answer(is_begun=True)
