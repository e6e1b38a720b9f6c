"""Text to token ids and back: one token a byte, and two more that begin and end a sequence.

The rule to keep: encoding is a bijection on bytes, so no two prompts share token ids and a block
of the prefix cache never stands for two texts.
"""

import codecs
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BYTES = 256
BOS = 256
EOS = 257
VOCAB_SIZE = 258

PRINTABLE = (ord("\n"), *range(0x20, 0x7F))


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


def encode(text: str) -> list[int]:
    """Return the ids of a prompt: `BOS`, then one id for each byte of the text's UTF-8."""
    return [BOS, *text.encode("utf-8", "surrogatepass")]


def decode(ids: Iterable[int]) -> str:
    """Return the text of the ids; `BOS` and `EOS` have none, broken UTF-8 becomes U+FFFD."""
    return bytes(i for i in ids if i < BYTES).decode("utf-8", "replace")


def token_name(token: int) -> str:
    """Return how one token is written in a list of log-probabilities, as OpenAI writes them."""
    if token == BOS:
        return "<s>"
    if token == EOS:
        return "</s>"
    return chr(token) if token < 0x80 else f"bytes:\\x{token:02x}"  # noqa: PLR2004  ASCII


def chat_prompt(messages: Sequence[Message]) -> str:
    """Return a conversation as one text that ends where the assistant's answer begins."""
    turns = "".join(f"<|{turn.role}|>\n{turn.content}\n" for turn in messages)
    return f"{turns}<|assistant|>\n"


class TextStream:
    """Turns token ids into text as they come, and stops before a stop string.

    Text is held back while it could still be the beginning of a stop string or of a character,
    so what was given out is never taken back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False

    def push(self, token: int, *, last: bool = False) -> str:
        """Take one token and return the text that is now certain.

        Args:
            token: The next id.
            last: No token follows: all that was held back is given out.
        """
        piece = bytes((token,)) if token < BYTES else b""
        self._held += self._decoder.decode(piece, final=last)
        cut = min((at for stop in self._stops if (at := self._held.find(stop)) >= 0), default=-1)
        if cut >= 0:
            self.is_stopped = True
            text, self._held = self._held[:cut], ""
            return text
        keep = 0 if last else self._undecided()
        split = len(self._held) - keep
        text, self._held = self._held[:split], self._held[split:]
        return text

    def _undecided(self) -> int:
        """Return how many characters at the end may yet turn out to begin a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
