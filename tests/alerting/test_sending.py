"""One try: what each answer means, on a real server."""

import asyncio

import httpx
import pytest

from tests.alerting.support import ALERT, PATH, receiving
from vctl_agent.alerting import sending
from vctl_agent.alerting.bodies import Kind, dingtalk_signature
from vctl_agent.alerting.sending import Delivered, Later, Refused, retry_after_s, send
from vctl_agent.alerting.webhooks import Webhook


async def sent(answer, kind=Kind.GENERIC, **more):
    async with receiving(answer) as receiver, httpx.AsyncClient(trust_env=False) as client:
        said = await send(client, receiver.webhook(kind, **more), ALERT, fleet="dev")
        return said, receiver


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, Delivered), (204, Delivered), (302, Refused), (400, Refused), (404, Refused),
        (408, Later), (410, Refused), (429, Later), (500, Later), (503, Later),
    ],
)  # fmt: skip
async def test_answer_is_judged_by_its_status(status, kind):
    said, receiver = await sent((status, "ok", {"Location": "/elsewhere"}))
    assert kind is type(said)
    assert ["r2-5"] == receiver.ids


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.DINGTALK, '{"errcode":0,"errmsg":"ok"}', Delivered()),
        (Kind.DINGTALK, '{"errcode":130101,"errmsg":"send too fast"}',
         Later("errcode 130101: send too fast")),
        (Kind.DINGTALK, '{"errcode":310000,"errmsg":"sign not match"}',
         Refused("errcode 310000: sign not match")),
        (Kind.WECOM, '{"errcode":0,"errmsg":"ok"}', Delivered()),
        (Kind.WECOM, '{"errcode":45009,"errmsg":"api freq out of limit"}',
         Later("errcode 45009: api freq out of limit")),
        (Kind.WECOM, '{"errcode":93000,"errmsg":"invalid webhook url"}',
         Refused("errcode 93000: invalid webhook url")),
        (Kind.WECOM, "<html>a proxy's page</html>",
         Later("an answer without errcode: <html>a proxy's page</html>")),
        (Kind.SLACK, "ok", Delivered()),
    ],
)  # fmt: skip
async def test_answer_of_200_is_judged_by_its_code(kind, text, expected):
    said, _ = await sent((200, text, {}), kind)
    assert expected == said


async def test_signed_webhook_has_time_and_signature_in_its_query():
    async with receiving() as receiver, httpx.AsyncClient(trust_env=False) as client:
        hook = receiver.webhook(Kind.DINGTALK, secret="SEC1")
        hook = Webhook(name="d", kind=hook.kind, url=f"{hook.url}?access_token=a+b", secret="SEC1")
        await send(client, hook, ALERT, fleet="dev", wall_s=lambda: 1577262236.757)
    signed = dingtalk_signature("SEC1", timestamp_ms=1577262236757)
    assert [{"access_token": "a b", **signed}] == receiver.queries


async def test_refusal_does_not_repeat_the_address():
    said, _ = await sent((404, f"{PATH} was not found", {}))
    assert Refused("404: *** was not found") == said


async def test_server_that_never_answers_is_tried_later(monkeypatch):
    monkeypatch.setattr(sending, "TRY_S", 0.05)
    said, _ = await sent(None)
    assert isinstance(said, Later)


async def test_answer_without_end_is_not_read(monkeypatch):
    """Neither for ever nor into memory."""
    monkeypatch.setattr(sending, "_READ_BYTES", 100)
    said, _ = await sent((400, "x" * 10_000_000, {}))
    assert Refused("400: " + "x" * 100) == said


async def test_server_that_is_not_there_is_tried_later():
    hook = Webhook(name="a", kind=Kind.SLACK, url="http://127.0.0.1:1/services/T000SECRET")
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(5):
        said = await send(client, hook, ALERT, fleet="dev")
    assert isinstance(said, Later)
    assert "ConnectError" in said.why
    assert "T000SECRET" not in said.why


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 0.0),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "999999"}, 3600.0),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
          "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 -0000",
          "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_by_the_servers_own_clock(headers, expected):
    assert expected == retry_after_s(httpx.Headers(headers))


async def test_retry_after_of_an_answer_is_kept():
    said, _ = await sent((429, "slow down", {"Retry-After": "7"}))
    assert Later("429: slow down", after_s=7.0) == said
