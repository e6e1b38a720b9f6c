"""Changes of a vLLM under a pause: another base, or other bytes under one name.

The order that a change must keep: the engine is stamped before it is paused, and stamped again
before its weights are touched, so that an agent that dies leaves word; it is resumed only once its
caches were dropped and it has said so. While its weights are whole every failure ends with a
resume; once they may not be, none does: whoever waits, waits for the restart.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from vctl_agent.engines.http import EngineHttp, said_by
from vctl_agent.engines.vllm.stamp import Doing, Stamp, new
from vctl_plans.errors import (
    EngineError,
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)

DRAIN_S = 30.0
"""Time for the requests that run, after the gateway has drained: others may call the engine too."""

_PAUSE_S = 30.0
_RELOAD_S = 900.0
"""Time to read a base of some hundred gigabytes from a disk."""

_STRICTLY = {"reset_running_requests": "true", "reset_external": "true"}
_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)
_OTHER_CACHES = ("/reset_mm_cache", "/reset_encoder_cache")


class _Reset(msgspec.Struct):
    success: bool


async def swap(
    http: EngineHttp, *, before: Stamp, path: str, source: str, adapters: Sequence[str]
) -> None:
    """Put another base in the place of the present one.

    Args:
        http: The engine.
        before: What it says that it holds.
        path: The base that it is to say that it holds.
        source: Where that base is read from.
        adapters: The names that it lists; they go with the old base.

    Raises:
        SuspectEngineError: Its weights may be of neither base.
        EngineError: They are the old ones.
    """
    after = new(path, Doing.PAUSED)
    await put(http, before.but(Doing.PAUSED))
    try:
        await _pause(http, "wait", within_s=DRAIN_S)
        for name in adapters:
            await unload(http, name)
        await put(http, before.but(Doing.CHANGING))
    except BaseException:  # also when the agent is told to end: nobody else would resume it
        await _let_go(http, before)
        raise
    try:
        body = {"method": "reload_weights", "kwargs": {"weights_path": source}}
        await http.ask("/collective_rpc", body=body, within_s=_RELOAD_S)
        await reset(http)
        await put(http, after)
    except EngineError as cause:
        raise SuspectEngineError(
            f"the change of its base broke off: {cause.message}", hint="restart the engine"
        ) from cause
    await resume(http, after)


async def replace(http: EngineHttp, *, before: Stamp, name: str, path: str, former: str) -> None:
    """Give *name* the adapter at *path*; a refused one leaves the former in its place.

    Args:
        http: The engine.
        before: What it says that it holds.
        name: The adapter's name, which stays.
        path: Where its new bytes are.
        former: Where its present bytes are; empty: it has none.
    """
    await put(http, before.but(Doing.PAUSED))
    try:
        await _pause(http, "keep", within_s=_PAUSE_S)
        await unload(http, name)
        refusal = await load(http, name, path)
        if refusal and former:
            await load(http, name, former)
    except BaseException:  # see `swap`
        await _let_go(http, before)
        raise
    await _let_go(http, before)
    if refusal:
        raise PermanentEngineError(refusal)


async def load(http: EngineHttp, name: str, path: str) -> str:
    """Load an adapter; return what the engine said if it did not take it, for a person."""
    body = {"lora_name": name, "lora_path": path}
    response = await http.ask("/v1/load_lora_adapter", body=body, accept=_REFUSALS)
    if response.is_success:
        return ""
    return f"it refused {name}: {response.status_code} {said_by(response)}"


async def unload(http: EngineHttp, name: str) -> None:
    """Have the engine forget a name; one that is not there is no error."""
    missing = (HTTPStatus.NOT_FOUND,)
    await http.ask("/v1/unload_lora_adapter", body={"lora_name": name}, accept=missing)


async def reset(http: EngineHttp) -> None:
    """Drop whatever is cached; running requests are computed anew.

    Raises:
        TemporaryEngineError: It is busy: it answers 200 then, and says that it did not.
    """
    response = await http.ask("/reset_prefix_cache", method="POST", query=_STRICTLY)
    if not http.read(response, _Reset).success:
        raise TemporaryEngineError("the engine is busy and has not dropped its prefix cache")
    for route in _OTHER_CACHES:
        await http.ask(route, method="POST", accept=(HTTPStatus.NOT_FOUND,))


async def resume(http: EngineHttp, stamp: Stamp) -> None:
    """Let requests go on, and say that nothing is done any more; harmless to repeat."""
    await http.ask("/resume", method="POST", within_s=_PAUSE_S)
    await put(http, stamp.but(Doing.NOTHING))


async def put(http: EngineHttp, stamp: Stamp) -> None:
    """Stamp the engine."""
    body = {"new_version": stamp.text()}
    await http.ask("/update_weight_version", body=body, within_s=_PAUSE_S)


async def _pause(http: EngineHttp, mode: str, *, within_s: float) -> None:
    """Pause; an engine that does not get there in time is paused all the same: resume it."""
    await http.ask("/pause", method="POST", query={"mode": mode}, within_s=within_s)


async def _let_go(http: EngineHttp, stamp: Stamp) -> None:
    """Resume an engine whose weights are whole; where that fails, its stamp says what is left."""
    await reset(http)
    await resume(http, stamp)
