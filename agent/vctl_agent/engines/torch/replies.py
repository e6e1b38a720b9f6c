"""What clients get: OpenAI's response and chunk shapes, built from the pieces of an answer.

The rule to keep: the chunks of a stream, joined, say exactly what the whole response says.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from vctl_agent.engines.torch.generate import Piece
from vctl_agent.engines.torch.openai import Call
from vctl_agent.engines.torch.tokenizer import BYTES, token_name

Document: TypeAlias = dict[str, Any]


class Reply:
    """The response to one call, as chunks while it is generated, or whole.

    Args:
        call: What was asked.
        reply_id: The response's id.
        created: Unix time in seconds.
        fingerprint: OpenAI's `system_fingerprint`; here the beginning of the digest of the weights
            that answer.
    """

    def __init__(self, call: Call, *, reply_id: str, created: int, fingerprint: str) -> None:
        self._call = call
        self._head: Document = {
            "id": reply_id,
            "created": created,
            "model": call.model,
            "system_fingerprint": fingerprint,
        }
        self._offset = 0  # characters given out before the next piece

    def opening(self) -> list[Document]:
        """Return the chunks that come before the first piece."""
        if not self._call.is_chat:
            return []
        return [self._chunk({"delta": {"role": "assistant", "content": ""}}, None)]

    def chunk(self, piece: Piece) -> Document:
        """Return the chunk of the next piece."""
        text: Document = {"delta": {"content": piece.text}}
        if not self._call.is_chat:
            text = {"text": piece.text}
        return self._chunk({**text, **self._extras([piece])}, piece.finish_reason)

    def closing(self, pieces: Sequence[Piece]) -> list[Document]:
        """Return the chunks that come after the last piece."""
        if not self._call.include_usage:
            return []
        kind = "chat.completion.chunk" if self._call.is_chat else "text_completion"
        return [{**self._head, "object": kind, "choices": [], "usage": self._usage(pieces)}]

    def whole(self, pieces: Sequence[Piece]) -> Document:
        """Return the response that is no stream."""
        content = "".join(piece.text for piece in pieces)
        text: Document = {"message": {"role": "assistant", "content": content}}
        if not self._call.is_chat:
            text = {"text": content}
        choice = {"index": 0, **text, **self._extras(pieces)}
        choice["finish_reason"] = pieces[-1].finish_reason
        return {
            **self._head,
            "object": "chat.completion" if self._call.is_chat else "text_completion",
            "choices": [choice],
            "usage": self._usage(pieces),
        }

    def _chunk(self, choice: Document, finish_reason: str | None) -> Document:
        kind = "chat.completion.chunk" if self._call.is_chat else "text_completion"
        full = {"index": 0, **choice, "finish_reason": finish_reason}
        chunk: Document = {**self._head, "object": kind, "choices": [full]}
        return {**chunk, "usage": None} if self._call.include_usage else chunk

    def _extras(self, pieces: Sequence[Piece]) -> Document:
        extras: Document = {"logprobs": None}
        if self._call.order.sampling.top_logprobs is not None:
            is_chat = self._call.is_chat
            extras["logprobs"] = _chat_logprobs(pieces) if is_chat else self._logprobs(pieces)
        if self._call.return_token_ids:
            extras["token_ids"] = [piece.token.id for piece in pieces]
        return extras

    def _logprobs(self, pieces: Sequence[Piece]) -> Document:
        offsets = []
        for piece in pieces:
            offsets.append(self._offset)
            self._offset += len(piece.text)
        return {
            "tokens": [token_name(piece.token.id) for piece in pieces],
            "token_logprobs": [piece.token.logprob for piece in pieces],
            "top_logprobs": [_with_chosen(piece) for piece in pieces],
            "text_offset": offsets,
        }

    def _usage(self, pieces: Sequence[Piece]) -> Document:
        prompt, generated = len(self._call.order.prompt), len(pieces)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": pieces[-1].cached_tokens},
        }


def _with_chosen(piece: Piece) -> dict[str, float | None]:
    """Return the likeliest tokens and, as OpenAI does, the chosen one also when it is not."""
    likeliest = {token_name(token): logprob for token, logprob in piece.token.alternatives}
    return {**likeliest, token_name(piece.token.id): piece.token.logprob}


def _chat_logprobs(pieces: Sequence[Piece]) -> Document:
    def entry(token: int, logprob: float | None) -> Document:
        raw = [token] if token < BYTES else []
        return {"token": token_name(token), "logprob": logprob, "bytes": raw}

    return {
        "content": [
            {
                **entry(piece.token.id, piece.token.logprob),
                "top_logprobs": [entry(*pair) for pair in piece.token.alternatives],
            }
            for piece in pieces
        ]
    }
