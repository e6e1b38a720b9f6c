"""One try to bring one alert to one webhook: it took it, may take it later, or never will.

Judged by status, and of DingTalk and WeCom, which answer 200 to everything, by `errcode`; never by
a text. A `Retry-After` is honoured; one that is a date is taken from the server's own `Date`, so
that no two clocks are compared (RFC 9110, 10.2.3).
"""

import asyncio
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx
import msgspec

from vctl_agent.alerting.bodies import Kind, body, dingtalk_signature
from vctl_agent.alerting.webhooks import Webhook
from vctl_plans.alert import Alert

TRY_S = 10.0
"""For one try, whole."""

LONGEST_RETRY_AFTER_S = 3600.0

_READ_BYTES = 16_384
"""Of an answer: who sends more does not fill the memory."""

_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

_BUSY_CODES = {
    # -1: busy; 130101 and 410100: more than 20 messages a minute (open.dingtalk.com, error codes)
    Kind.DINGTALK: {-1, 130101, 410100},
    # -1: busy; 45009: too many calls (developer.work.weixin.qq.com, document 90313)
    Kind.WECOM: {-1, 45009},
}


class Delivered(msgspec.Struct, frozen=True):
    """It has the alert."""


class Later(msgspec.Struct, frozen=True):
    """It may take it later, not before *after_s*."""

    why: str
    after_s: float = 0.0


class Refused(msgspec.Struct, frozen=True):
    """It will never take it."""

    why: str


class _Coded(msgspec.Struct):
    """What DingTalk and WeCom answer."""

    errcode: int
    errmsg: str = ""


async def send(
    client: httpx.AsyncClient,
    webhook: Webhook,
    alert: Alert,
    *,
    fleet: str,
    wall_s: Callable[[], float] = time.time,
) -> Delivered | Later | Refused:
    """Post *alert* once.

    Args:
        client: For the connection.
        webhook: Where to.
        alert: What.
        fleet: The fleet's name.
        wall_s: Seconds since 1970, for DingTalk's signature.
    """
    url = httpx.URL(webhook.url)
    if webhook.secret:
        url = url.copy_merge_params(
            dingtalk_signature(webhook.secret, timestamp_ms=round(wall_s() * 1000))
        )
    content = msgspec.json.encode(body(webhook.kind, alert, fleet=fleet))
    try:
        async with asyncio.timeout(TRY_S):  # httpx's own limit is for each piece of an answer
            return await _post(client, webhook, url, content)
    except (httpx.HTTPError, TimeoutError) as cause:
        return Later(webhook.scrubbed(f"{type(cause).__name__}: {cause}"))


async def _post(
    client: httpx.AsyncClient, webhook: Webhook, url: httpx.URL, content: bytes
) -> Delivered | Later | Refused:
    headers = {"content-type": "application/json; charset=utf-8"}
    posted = client.stream("POST", url, content=content, headers=headers, timeout=TRY_S)
    async with posted as response:
        answer = b""
        async for piece in response.aiter_bytes():
            answer += piece
            if len(answer) >= _READ_BYTES:
                break
        return _judged(webhook, response, answer[:_READ_BYTES])


def _judged(
    webhook: Webhook, response: httpx.Response, answer: bytes
) -> Delivered | Later | Refused:
    status = response.status_code
    if response.is_success:
        return _coded(webhook, answer) if webhook.kind in _BUSY_CODES else Delivered()
    why = webhook.scrubbed(f"{status}: {answer.decode(errors='replace')}")
    if response.is_server_error or status in _BUSY:
        return Later(why, after_s=retry_after_s(response.headers))
    return Refused(why)


def _coded(webhook: Webhook, answer: bytes) -> Delivered | Later | Refused:
    try:
        said = msgspec.json.decode(answer, type=_Coded)
    except (msgspec.MsgspecError, RecursionError):
        text = answer.decode(errors="replace")
        return Later(webhook.scrubbed(f"an answer without errcode: {text}"))
    if said.errcode == 0:
        return Delivered()
    why = webhook.scrubbed(f"errcode {said.errcode}: {said.errmsg}")
    busy: set[int] = _BUSY_CODES[webhook.kind]
    return Later(why) if said.errcode in busy else Refused(why)


def retry_after_s(headers: Any) -> float:
    """Return how long an answer asks to wait, at most an hour; 0: it asks for nothing."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        until = parsedate_to_datetime(text)
        wait = until - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):  # no date, or one of them without a time zone
        return 0.0
    return min(max(0.0, wait.total_seconds()), LONGEST_RETRY_AFTER_S)
