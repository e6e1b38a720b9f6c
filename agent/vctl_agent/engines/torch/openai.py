"""What clients send: OpenAI's bodies for completions and chat, checked, as an `Order`.

The rule to keep: a field either does what OpenAI says, or is refused by name, or is unknown to
OpenAI as well. None that would change the answer is passed over in silence.
"""

import re
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from vctl_agent.engines.torch.generate import Order
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.tokenizer import VOCAB_SIZE, Message, chat_prompt, encode
from vctl_plans.errors import EngineError

# Fields of OpenAI's that change an answer and are not built here, with the value that says so.
NOT_BUILT = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "audio": (),
}
# Below this a temperature means greedy, as in vLLM (its _SAMPLING_EPS).
MIN_TEMPERATURE = 1e-5
DEFAULT_MAX_TOKENS = 16  # of completions; a chat's answer may fill the context

Body = TypeVar("Body", bound=msgspec.Struct)
TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=VOCAB_SIZE)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Filled: TypeAlias = Annotated[str, Meta(min_length=1)]
Top: TypeAlias = Annotated[int, Meta(ge=0, le=20)]


class ApiError(EngineError):
    """A request that is refused, as its client will see it."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    @classmethod
    def not_found(cls, message: str, *, param: str) -> Self:
        """There is no such model, or no such adapter."""
        return cls(message, status=404, kind="NotFoundError", param=param)

    @classmethod
    def invalid(cls, message: str, *, param: str | None = None) -> Self:
        """Well formed, but not possible now: the kind is vLLM's."""
        return cls(message, kind="InvalidUserInput", param=param)

    def document(self) -> dict[str, Any]:
        """Return the body of the response."""
        error = {"message": self.message, "type": self.kind, "param": self.param}
        return {"error": {**error, "code": self.status}}


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's `stream_options`."""

    include_usage: bool = False


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    model: Filled
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: Filled | Annotated[list[Filled], Meta(max_length=16)] = []
    stream: bool = False
    stream_options: StreamOptions | None = None
    cache_salt: Filled | None = None  # vLLM's: no prefix cache entry is shared across salts
    ignore_eos: bool = False  # vLLM's
    return_token_ids: bool = False  # vLLM's


class CompletionBody(_Common, frozen=True, kw_only=True):
    """The body of POST /v1/completions."""

    prompt: str | Annotated[list[TokenId], Meta(min_length=1)]
    logprobs: Top | None = None


class TextPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message's content; there are no other kinds here."""

    type: Literal["text"]
    text: str


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation, as OpenAI writes it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]

    def plain(self) -> Message:
        """Return the turn with its content as one text."""
        content = self.content
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        return Message(self.role, content)


class ChatBody(_Common, frozen=True, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Top | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was understood: what to generate, and how to write it."""

    model: str
    order: Order
    is_chat: bool
    is_stream: bool
    include_usage: bool
    return_token_ids: bool


def parse_completion(raw: bytes, context: int) -> Call:
    """Read the body of POST /v1/completions.

    Args:
        raw: The body.
        context: How many tokens a prompt and its answer may have together.

    Raises:
        ApiError: 400, naming the field.
    """
    body = parse_body(raw, CompletionBody)
    prompt = encode(body.prompt) if isinstance(body.prompt, str) else body.prompt
    wanted = body.max_tokens or DEFAULT_MAX_TOKENS
    return _call(body, prompt, wanted=wanted, top=body.logprobs, context=context)


def parse_chat(raw: bytes, context: int) -> Call:
    """Read the body of POST /v1/chat/completions.

    Args:
        raw: The body.
        context: How many tokens a prompt and its answer may have together.

    Raises:
        ApiError: 400, naming the field.
    """
    body = parse_body(raw, ChatBody)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
    prompt = encode(chat_prompt([message.plain() for message in body.messages]))
    wanted = body.max_completion_tokens or body.max_tokens or max(1, context - len(prompt))
    top = (body.top_logprobs or 0) if body.logprobs else None
    return _call(body, prompt, wanted=wanted, top=top, context=context)


def parse_body(raw: bytes, kind: type[Body]) -> Body:
    """Read a JSON body; `null` means that a field is absent, and unknown fields are passed over.

    Raises:
        ApiError: 400, naming the field.
    """
    try:
        document = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as cause:
        raise ApiError(f"The body is not a JSON object: {cause}") from cause
    document = {name: value for name, value in document.items() if value is not None}
    for name, accepted in NOT_BUILT.items():
        if name in document and document[name] not in accepted:
            raise ApiError(f"{name} is not supported by this engine", param=name)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as cause:
        # msgspec tells the place in its message only: "... - at `$.field[...]`" or, for one that
        # is missing, "... required field `field`".
        place = re.search(r"(?:at `\$\.|required field `)(\w+)", str(cause))
        raise ApiError(str(cause), param=place[1] if place else None) from cause


def _call(body: _Common, prompt: list[int], *, wanted: int, top: int | None, context: int) -> Call:
    is_chat = isinstance(body, ChatBody)
    if len(prompt) + wanted > context:
        message = (
            f"This model's context is {context} tokens; the prompt has {len(prompt)} and"
            f" {wanted} more were asked for."
        )
        raise ApiError(message, param="messages" if is_chat else "prompt")
    if body.stream_options is not None and not body.stream:
        raise ApiError("stream_options needs stream to be true", param="stream_options")
    temperature = body.temperature if body.temperature >= MIN_TEMPERATURE else 0.0
    sampling = Sampling(temperature, body.top_p, body.seed, top_logprobs=top)
    order = Order(
        prompt=tuple(prompt),
        max_tokens=wanted,
        sampling=sampling,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        ignore_eos=body.ignore_eos,
        cache_salt=body.cache_salt or "",
    )
    return Call(
        model=body.model,
        order=order,
        is_chat=is_chat,
        is_stream=body.stream,
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
        return_token_ids=body.return_token_ids,
    )
