"""POST /v1/completions and POST /v1/chat/completions, as one response or as a stream.

The rule to keep: a request holds its adapter and counts as in flight until its last token is
made (in a stream: written), and not a moment longer, whichever way it ends.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeAlias

import msgspec
import structlog
from aiohttp import web

from vctl_agent.engines.torch.generate import Piece
from vctl_agent.engines.torch.lora import Adapter
from vctl_agent.engines.torch.openai import ApiError, Call, parse_chat, parse_completion
from vctl_agent.engines.torch.replies import Document, Reply
from vctl_agent.engines.torch.service import Service

Parse: TypeAlias = Callable[[bytes, int], Call]
log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Answers:
    """The two endpoints that generate text."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._counted(request, "completions", parse_completion)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._counted(request, "chat", parse_chat)

    def _spoilt(self, call: Call) -> Call:
        """Return the call as the faults on purpose have it, if there are any."""
        self._service.faults.meet(call.model)
        if not self._service.faults.is_stale(call.model):
            return call
        order = dataclasses.replace(call.order, is_stale=True)
        return msgspec.structs.replace(call, order=order)

    async def _counted(
        self, request: web.Request, endpoint: str, parse: Parse
    ) -> web.StreamResponse:
        began = time.monotonic()
        outcome = "cancelled"  # unless something else is seen to happen
        try:
            call = parse(await request.read(), self._service.engine.context)
            call = self._spoilt(call)
            with self._service.registry.use(call.model) as adapter:
                answer = _Answer(
                    self._service, request, call=call, adapter=adapter, endpoint=endpoint
                )
                response = await (answer.stream() if call.is_stream else answer.whole())
            outcome = "completed" if answer.is_complete else "failed"
        except (ApiError, web.HTTPException):
            outcome = "refused"
            raise
        except ConnectionError:
            raise
        except Exception:  # counted, whatever it is, and raised again
            outcome = "failed"
            raise
        finally:
            self._service.metrics.requests.labels(endpoint, outcome).inc()
        elapsed_s = time.monotonic() - began
        self._service.metrics.request_seconds.labels(endpoint).observe(elapsed_s)
        return response


class _Answer:
    """One request whose model was found."""

    def __init__(
        self,
        service: Service,
        request: web.Request,
        *,
        call: Call,
        adapter: Adapter | None,
        endpoint: str,
    ) -> None:
        self._service = service
        self._request = request
        self._call = call
        self._adapter = adapter
        self._endpoint = endpoint
        self._began = time.monotonic()
        self._pieces: list[Piece] = []
        prefix = "chatcmpl" if call.is_chat else "cmpl"
        self._reply = Reply(
            call,
            reply_id=f"{prefix}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex}",
            created=int(time.time()),
            fingerprint=service.fingerprint(adapter),
        )

    @property
    def is_complete(self) -> bool:
        """Whether the last piece came."""
        return bool(self._pieces) and self._pieces[-1].finish_reason is not None

    async def whole(self) -> web.StreamResponse:
        """Generate all, then answer."""
        async with aclosing(
            self._service.pieces(self._call.order, adapter=self._adapter)
        ) as pieces:
            async for piece in pieces:
                self._note(piece)
        return json_response(self._reply.whole(self._pieces))

    async def stream(self) -> web.StreamResponse:
        """Answer with one event a piece.

        A fault after the first byte can no longer change the status: the stream then carries an
        error and ends without `[DONE]`.
        """
        response = web.StreamResponse(headers={"Cache-Control": "no-cache"})
        response.content_type = "text/event-stream"
        await response.prepare(self._request)
        for chunk in self._reply.opening():
            await response.write(_event(chunk))
        try:
            async with aclosing(
                self._service.pieces(self._call.order, adapter=self._adapter)
            ) as pieces:
                async for piece in pieces:
                    self._note(piece)
                    if piece.finish_reason is None:
                        await response.write(_event(self._reply.chunk(piece)))
        except ConnectionError:
            raise
        except Exception:  # the status is sent already: only the stream itself can still tell
            log.exception("generation failed in a stream", model=self._call.model)
            await response.write(_event(internal_error().document()))
            return response
        ending = [self._reply.chunk(self._pieces[-1]), *self._reply.closing(self._pieces)]
        await response.write(b"".join((*map(_event, ending), b"data: [DONE]\n\n")))
        return response

    def _note(self, piece: Piece) -> None:
        metrics = self._service.metrics
        if not self._pieces:
            elapsed_s = time.monotonic() - self._began
            metrics.first_token_seconds.labels(self._endpoint).observe(elapsed_s)
            metrics.tokens.labels("prompt").inc(len(self._call.order.prompt))
            metrics.tokens.labels("cached").inc(piece.cached_tokens)
        metrics.tokens.labels("generated").inc()
        self._pieces.append(piece)


def internal_error() -> ApiError:
    """Return what a client hears of a fault of ours."""
    return ApiError("The engine failed; see its log.", status=500, kind="InternalServerError")


def json_response(document: Document, *, status: int = 200) -> web.Response:
    """Return a JSON response."""
    body = msgspec.json.encode(document)
    return web.Response(body=body, status=status, content_type="application/json")


def _event(document: Document) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"
