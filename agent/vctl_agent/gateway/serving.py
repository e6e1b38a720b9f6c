"""A request that is to be served: choose, take a reference, check, ask the engine or a peer.

The order of the middle two is the rule that keeps releases from being unloaded under a request: the
reference is taken first and the release checked after, and whoever takes a release out of the ready
set looks at the count after that. One of the two sees the other.
"""

from vctl_agent.gateway import headers
from vctl_agent.gateway.answers import Elsewhere, no_model
from vctl_agent.gateway.barrier import Barrier
from vctl_agent.gateway.call import Call, engine_body, read_call
from vctl_agent.gateway.choosing import Choosing
from vctl_agent.gateway.counting import Counting
from vctl_agent.gateway.hop import Hop, path_of
from vctl_agent.gateway.hopreceiver import HopReceiver
from vctl_agent.gateway.hopsender import HopSender
from vctl_agent.gateway.inflight import References
from vctl_agent.gateway.live import Live
from vctl_agent.gateway.observation import Counted, Observation
from vctl_agent.gateway.passage import Passage
from vctl_agent.gateway.rewrite import ModelName
from vctl_agent.gateway.stamp import Stamp
from vctl_agent.gateway.state import RouteAt
from vctl_agent.gateway.tenancy import Tenancy
from vctl_agent.gateway.upstream import Upstream, relay
from vctl_agent.gateway.wire.message import Answer, Request
from vctl_plans.prompt import Form

CHATS = {
    "/v1/chat/completions": Form.CHAT,
    "/tokenize": Form.CHAT,
    "/v1/responses": Form.RESPONSES,
    "/v1/messages": Form.MESSAGES,
    "/v1/messages/count_tokens": Form.MESSAGES,
}
"""What a release's prompt is applied to: chats, and what says how long one is."""

NOT_FOUND = 404
"""What an engine answers when it does not hold the model that it is asked for."""


class Serving:
    """Serves what the front door has let in.

    Args:
        live: What requests are decided by.
        references: Who holds what.
        upstream: The engine.
        counting: Where ends are counted by release, for guardrails.
        barrier: Where requests wait while their service switches.
        receiver: Lets peers' requests in.
        sender: Passes requests to peers.
        choosing: Chooses the release.
        stamp: Marks answers.
        tenancy: Says which key goes on with a request.
    """

    def __init__(
        self,
        live: Live,
        references: References,
        upstream: Upstream,
        *,
        counting: Counting,
        barrier: Barrier,
        receiver: HopReceiver,
        sender: HopSender,
        choosing: Choosing,
        stamp: Stamp,
        tenancy: Tenancy,
    ) -> None:
        self._live = live
        self._references = references
        self._upstream = upstream
        self._counting = counting
        self._barrier = barrier
        self._receiver = receiver
        self._sender = sender
        self._choosing = choosing
        self._stamp = stamp
        self._tenancy = tenancy

    async def serve(self, request: Request, passage: Passage, call: Call, at: RouteAt) -> Answer:
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
        known = self._live.acted.known
        if not self._tenancy.can_reach(passage.tenant, call.model, known):
            raise no_model(call.model)  # handed over while the request waited
        self._choosing.choose(request.head, call, at, passage)
        release_id = (call.model, passage.release)
        digest = known.digest(release_id)
        counted = Counted(*release_id, digest, at.revision)
        # Counted once, where it was chosen: whoever serves a hop counts nothing for guardrails.
        with self._counting.observe(counted) as seen:
            try:
                return await self._serve_here(request, passage, call, seen)
            except Elsewhere:
                response = await self._pass_on(request, passage, call, seen)
                if response is None:
                    raise
                return response

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
            body = engine_body(call, target, form=CHATS.get(request.path))
            response = await self.ask(request, passage, body, name, seen=seen)
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
            stamp=lambda response: self._stamp.put(response, passage),
            seen=seen,
        )

    async def serve_hop(self, request: Request, passage: Passage, hop: Hop, body: bytes) -> Answer:
        """Serve the release that the sender chose, or refuse; never choose, never pass it on."""
        passage.service, passage.release, passage.route = hop.service, hop.number, hop.route
        passage.tenant = hop.tenant
        release_id = (hop.service, hop.number)
        with self._receiver.answering(hop, passage.leg), self._references.hold(release_id):
            target = self._receiver.target(hop)
            name = ModelName(target.model, hop.service)
            asked = engine_body(read_call(body), target, form=CHATS.get(request.path))
            return await self.ask(request, passage, asked, name)

    async def ask(
        self,
        request: Request,
        passage: Passage,
        body: bytes,
        name: ModelName | None,
        *,
        seen: Observation | None = None,
    ) -> Answer:
        """Ask the engine, and relay its answer.

        Args:
            request: The client's request.
            passage: What is noted of it.
            body: What the engine gets.
            name: The names to exchange; None: everything passes unchanged.
            seen: Told what becomes of the answer.
        """
        base = self._live.engine_url
        if not base:
            raise Elsewhere("no engine is known yet", code="engine_unavailable")
        lines = headers.for_engine(request.head, self._tenancy.kept_here)
        lines += passage.id_line + self._tenancy.engine_line
        answer = await self._upstream.ask(base, path_of(request), lines, body)
        try:
            return await relay(
                answer,
                request,
                name=name,
                stamp=lambda response: self._stamp.put(response, passage),
                seen=seen,
            )
        finally:
            answer.close()
