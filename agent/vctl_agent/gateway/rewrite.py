"""Give back the public model name: in JSON bodies, in SSE data lines, in an engine's errors.

Only the ``model`` of an object, or of the one that an event wraps, is touched, and every other
value's bytes stay as the engine wrote them: msgspec's Raw splits an object without reading its
values (0.6 us a token event). A value that is not an object (``[DONE]``, or something malformed)
passes unchanged.
"""

import functools
import re
from collections.abc import Callable, Mapping

import msgspec

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A longer SSE line passes through as it comes, so that a stream cannot grow memory."""

Read = Callable[[Mapping[str, msgspec.Raw]], None]
"""Gets the fields of each object that passes, as the engine wrote them."""

_DONE = b"[DONE]"
_DATA, _END = b"data: ", b"\n\n"
_LAST = frozenset(
    {
        b'"message_stop"',
        b'"response.completed"',
        b'"response.incomplete"',
        b'"response.failed"',
    }
)
"""Types of the last events of ``/v1/messages`` and ``/v1/responses``: no [DONE] follows them."""

_WRAPPED = ("response", "message")
"""Fields of their events that hold the whole answer: of ``response.created``, ``message_start``."""

_DATA_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))data:([^\r\n]+)")
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def split(body: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the fields of a JSON object; None: it is none."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None


class ModelName:
    """The engine's name of a model, and the public one to put in its place.

    Args:
        engine: The engine's name.
        public: The public one.
        read: Shown each object, since it is split here anyway.
    """

    def __init__(self, engine: str, public: str, read: Read = lambda _: None) -> None:
        self._read = read
        self._raw, self._engine_text, self._public_text = _spelled(engine, public)

    def restored(self, body: bytes) -> bytes:
        """Return a JSON object with its public model name; anything else unchanged."""
        fields = split(body)
        return body if fields is None else self.of(fields, body)

    def of(self, fields: dict[str, msgspec.Raw], body: bytes) -> bytes:
        """Return the object *body*, which is split into *fields*, with its public model name."""
        self._read(fields)
        is_changed = False
        if "error" in fields:
            fields["error"] = msgspec.Raw(self.restored_text(bytes(fields["error"])))
            is_changed = True
        if "model" in fields:
            fields["model"] = self._raw
            is_changed = True
        elif "type" in fields:
            is_changed = self._unwrapped(fields) or is_changed
        return _encoder.encode(fields) if is_changed else body

    def _unwrapped(self, fields: dict[str, msgspec.Raw]) -> bool:
        """Restore the answer that an event wraps; return whether there is one."""
        for name in _WRAPPED:
            inner = split(bytes(fields[name])) if name in fields else None
            if inner and "model" in inner:
                inner["model"] = self._raw
                fields[name] = msgspec.Raw(_encoder.encode(inner))
                return True
        return False

    def restored_text(self, text: bytes) -> bytes:
        """Return an error's text with the engine's name replaced wherever it stands."""
        return text.replace(self._engine_text, self._public_text)


@functools.lru_cache(maxsize=1024)
def _spelled(engine: str, public: str) -> tuple[msgspec.Raw, bytes, bytes]:
    """Return the public name as JSON, and both as they stand inside of a text."""
    raw = _encoder.encode(public)
    return msgspec.Raw(raw), _encoder.encode(engine)[1:-1], raw[1:-1]


class EventStream:
    """An SSE stream whose events are restored as they pass.

    A line is passed on as soon as it is whole; the bytes of a line that is not wait for its end.
    """

    def __init__(self, name: ModelName) -> None:
        self.is_done = False  # whether the engine's last word has passed
        self._name = name
        self._rest = b""
        self._is_in_long_line = False

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be passed on after *chunk*; perhaps nothing."""
        if self._is_in_long_line:
            return self._past_long_line(chunk)
        if not self._rest and _is_one_event(chunk):
            return self._restored(chunk[len(_DATA) : -len(_END)], chunk, _END)
        text = self._rest + chunk if self._rest else chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._rest = text[end:]
        passed = _DATA_LINE.sub(self._restore, text[:end])
        if len(self._rest) <= MAX_LINE_BYTES:
            return passed
        self._is_in_long_line = True
        rest, self._rest = self._rest, b""
        return passed + rest

    def end(self) -> bytes:
        """Return what is left when the engine ends the stream without a line's end."""
        rest, self._rest = self._rest, b""
        return _DATA_LINE.sub(self._restore, rest)

    def _past_long_line(self, chunk: bytes) -> bytes:
        ends = [at for at in (chunk.find(b"\n"), chunk.find(b"\r")) if at >= 0]
        if not ends:
            return chunk
        self._is_in_long_line = False
        return chunk[: min(ends)] + self.feed(chunk[min(ends) :])

    def _restore(self, line: re.Match[bytes]) -> bytes:
        return self._restored(line[1], line[0])

    def _restored(self, written: bytes, unchanged: bytes, end: bytes = b"") -> bytes:
        """Return the line that says *written*, followed by *end*; *unchanged*: as it came."""
        fields = split(written)
        if fields is None:
            self.is_done = self.is_done or written.strip() == _DONE
            return unchanged
        if "type" in fields:
            self.is_done = self.is_done or bytes(fields["type"]) in _LAST
        restored = self._name.of(fields, written)
        return unchanged if restored is written else b"data: %b%b" % (restored, end)


def _is_one_event(chunk: bytes) -> bool:
    """Whether it is one line of data and the event's end, as nearly all are."""
    return (
        chunk.startswith(_DATA)
        and chunk.endswith(_END)
        and chunk.count(b"\n") == len(_END)
        and b"\r" not in chunk
        and len(chunk) > len(_DATA) + len(_END)
    )
