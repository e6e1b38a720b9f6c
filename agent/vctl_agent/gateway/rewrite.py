"""Give back the public model name: in JSON bodies, in SSE data lines, in an engine's errors.

Only the top-level ``model`` of an object is touched, and every other value's bytes stay as the
engine wrote them: msgspec's Raw splits an object without reading its values (0.6 us a token event).
A value that is not an object (``[DONE]``, or something malformed) passes unchanged.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A longer SSE line passes through as it comes, so that a stream cannot grow memory."""

Read = Callable[[Mapping[str, msgspec.Raw]], None]
"""Gets the fields of each object that passes, as the engine wrote them."""

_DONE = b"[DONE]"
_DATA_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))data:([^\r\n]+)")
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


class ModelName:
    """The engine's name of a model, and the public one to put in its place.

    Args:
        engine: The engine's name.
        public: The public one.
        read: Shown each object, since it is split here anyway.
    """

    def __init__(self, engine: str, public: str, read: Read = lambda _: None) -> None:
        self._read = read
        self._raw = msgspec.Raw(_encoder.encode(public))
        self._engine_text = _encoder.encode(engine)[1:-1]
        self._public_text = _encoder.encode(public)[1:-1]

    def restored(self, body: bytes) -> bytes:
        """Return a JSON object with its public model name; anything else unchanged."""
        try:
            fields = _decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            return body
        self._read(fields)
        if "error" in fields:
            fields["error"] = msgspec.Raw(self.restored_text(bytes(fields["error"])))
        elif "model" not in fields:
            return body
        if "model" in fields:
            fields["model"] = self._raw
        return _encoder.encode(fields)

    def restored_text(self, text: bytes) -> bytes:
        """Return an error's text with the engine's name replaced wherever it stands."""
        return text.replace(self._engine_text, self._public_text)


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
        written: bytes = line[1]
        restored = self._name.restored(written)
        if restored is written:
            self.is_done = self.is_done or written.strip() == _DONE
            return line[0]
        return b"data: " + restored
