"""An engine that costs next to nothing: for measuring what it is behind.

    python -m bench.stub_engine PORT_FILE

``POST /v1/...`` is answered at once. With ``"stream": true`` in the body, events come every
`INTERVAL_S`, as many as ``max_tokens`` says.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httptools
import uvloop

INTERVAL_S = 0.02
_TEXT = "The quick brown fox jumps over the lazy dog. " * 6
_CHUNK = '{{"id":"cmpl-1","object":"chat.completion.chunk","created":1,"model":{model},'
_CHUNK += '"choices":[{{"index":0,"delta":{{"content":" token"}},"finish_reason":null}}]}}'


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _answer(model: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": _TEXT},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 64, "total_tokens": 73},
        }
    ).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Engine(asyncio.Protocol):
    """One connection."""

    answers: dict[str, bytes] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._url = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not body:  # a health check, or the list of models
            listed = b'{"object":"list","data":[{"id":"support","object":"model"}]}'
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            self._transport.write(head % len(listed) + listed)
            return
        asked = json.loads(body)
        if asked.get("stream"):
            asyncio.get_running_loop().create_task(self._stream(asked))
            return
        model = asked["model"]
        if model not in self.answers:
            self.answers[model] = _answer(model)
        self._transport.write(self.answers[model])

    async def _stream(self, asked: dict[str, Any]) -> None:
        self._transport.write(_STREAM_HEAD)
        event = f"data: {_CHUNK.format(model=json.dumps(asked['model']))}\n\n".encode()
        piece = b"%x\r\n%b\r\n" % (len(event), event)
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(asked["max_tokens"]):
            due += INTERVAL_S
            await asyncio.sleep(max(0.0, due - loop.time()))
            if self._transport.is_closing():
                return
            self._transport.write(piece)
        self._transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def _serve(port_file: Path) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    await asyncio.to_thread(port_file.write_text, str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
