"""A real web server that can be told to misbehave: no ranges, cut connections, changed files."""

import contextlib
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

_PIECE = 16 * 1024


@dataclass
class Behaviour:
    """How the server answers from now on, and what it was asked."""

    folder: Path
    has_ranges: bool = True
    has_tags: bool = True
    statuses: list[int] = field(default_factory=list)  # of the next answers, before any good one
    cuts: dict[str, list[int]] = field(default_factory=dict)  # path's end -> bytes of next bodies
    tag_after_cut: str = ""  # the file is another from then on
    delay_s: float = 0.0  # before each 16 KiB of a body
    tag: str = ""  # added to each ETag: changed, the file is another
    wrong: set[str] = field(default_factory=set)  # paths whose first byte is another
    headers: dict[str, str] = field(default_factory=dict)
    answers: dict[str, object] = field(default_factory=dict)  # path -> JSON, whatever the query
    redirects: dict[str, str] = field(default_factory=dict)  # path -> location
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    seen_headers: list[dict[str, str]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)  # body bytes by path; probes aside
    read_only: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sent_bytes(self, suffix: str = "") -> int:
        """Count the body bytes of paths that end so, manifests aside."""
        return sum(
            count
            for path, count in self.sent.items()
            if path.endswith(suffix) and not path.endswith(".manifest.json")
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        about = self.behaviour
        wanted = self.headers.get("Range", "")
        with about.lock:
            about.requests.append(("GET", self.path, wanted))
            about.seen_headers.append({k.lower(): v for k, v in self.headers.items()})
            status = about.statuses.pop(0) if about.statuses else 200
        if self.path.partition("?")[0] in about.answers:
            self._json()
            return
        if self.path in about.redirects:
            self._short(302, {"Location": about.redirects[self.path]})
            return
        if status != 200:
            self._short(status)
            return
        file = about.folder / unquote(self.path).lstrip("/")
        if not file.is_file():
            self._short(404)
            return
        content = file.read_bytes()
        if self.path in about.wrong:
            content = bytes([content[0] ^ 1]) + content[1:]
        self._body(content, wanted)

    def _body(self, content: bytes, wanted: str) -> None:
        about = self.behaviour
        tag = f'"{len(content)}{about.tag}"'
        begin, end, status = 0, len(content), 200
        fresh = self.headers.get("If-Range", tag) == tag
        if wanted and about.has_ranges and fresh:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end, status = int(first), min(int(last) + 1, len(content)), 206
            if begin >= len(content):
                self._short(416)
                return
        self.send_response(status)
        self.send_header("Content-Length", str(end - begin))
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        if about.has_tags:
            self.send_header("ETag", tag)
        for name, value in about.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._pieces(content[begin:end])

    def _pieces(self, body: bytes) -> None:
        about = self.behaviour
        with about.lock:
            is_probe = self.headers.get("Range") == "bytes=0-0"
            cuts = next((c for end, c in about.cuts.items() if self.path.endswith(end)), [])
            cut = cuts.pop(0) if cuts and not is_probe else -1
        body = body if cut < 0 else body[:cut]
        with contextlib.suppress(OSError):
            for at in range(0, len(body), _PIECE):
                if about.delay_s:
                    time.sleep(about.delay_s)
                piece = body[at : at + _PIECE]
                self.wfile.write(piece)
                with about.lock:
                    if not is_probe:
                        about.sent[self.path] = about.sent.get(self.path, 0) + len(piece)
        if cut >= 0:
            about.tag = about.tag_after_cut or about.tag
            self.close_connection = True

    def do_POST(self) -> None:
        with self.behaviour.lock:
            self.behaviour.requests.append(("POST", self.path, ""))
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path in self.behaviour.answers:
            self._json()
        else:
            self._short(404)

    def _json(self) -> None:
        body = json.dumps(self.behaviour.answers[self.path.partition("?")[0]]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        about = self.behaviour
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with about.lock:
            about.requests.append(("PUT", self.path, ""))
        if about.read_only:
            self._short(403)
            return
        file = about.folder / unquote(self.path).lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        self._short(201)

    def _short(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that go away are the point."""


@contextlib.contextmanager
def serving(folder: Path, *, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, Behaviour]]:
    """Serve a folder on loopback; give the URL, and how it behaves."""
    about = Behaviour(folder)
    handler = type("Handler", (_Handler,), {"behaviour": about})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            scheme = "https" if tls else "http"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}", about
        finally:
            server.shutdown()
            thread.join()
