"""A hook at an address is told by POST and believed by its status."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from vctl_agent.hook import Hook, open_hook
from vctl_agent.hookurl import UrlHook
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError


class Listener:
    """An application that listens."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.text = ""
        self.hangs = False
        self.seen: list[tuple[str, bytes, str]] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        token = request.headers.get("authorization", "")
        self.seen.append((request.method, await request.read(), token))
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(status=self.status, text=self.text, headers={"location": "/other"})


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield made
    await runner.cleanup()


async def test_document_is_posted_and_the_answer_returned(listener: Listener) -> None:
    """As it is, with nothing around it."""
    listener.text = '{"a": 1}'
    hook = UrlHook(listener.url, timeout_s=5)

    assert b'{"a": 1}' == await hook.run("load", b'{"event": "load"}')
    assert [("POST", b'{"event": "load"}', "")] == listener.seen


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (503, "starting", TemporaryEngineError, "the hook failed on load (503): starting"),
        (500, "", TemporaryEngineError, "the hook failed on load (500)"),
        (429, "", TemporaryEngineError, "the hook failed on load (429)"),
        (408, "", TemporaryEngineError, "the hook failed on load (408)"),
        (425, "", TemporaryEngineError, "the hook failed on load (425)"),
        (404, "one\ntwo\n\n", PermanentEngineError, "the hook failed on load (404): two"),
        (422, '{"reason": "no such index"}', PermanentEngineError,
         "the hook failed on load (422): no such index"),
        (422, '{"reason": 7}', PermanentEngineError,
         'the hook failed on load (422): {"reason": 7}'),
        (302, "", PermanentEngineError, "the hook failed on load (302)"),
    ],
)  # fmt: skip
async def test_failure_is_told_by_the_status(
    listener: Listener, status: int, text: str, kind: type[EngineError], message: str
) -> None:
    """And what was said is the reason, for a person."""
    listener.status, listener.text = status, text
    with pytest.raises(EngineError) as failed:
        await UrlHook(listener.url, timeout_s=5).run("load", b"")

    assert (kind, message) == (type(failed.value), failed.value.message)


async def test_address_that_does_not_answer_is_given_up(listener: Listener) -> None:
    """It may be tried again."""
    listener.hangs = True

    with pytest.raises(TemporaryEngineError, match=r"did not answer on unload within 0\.2 s"):
        await UrlHook(listener.url, timeout_s=0.2).run("unload", b"")


async def test_nobody_there_is_a_temporary_failure() -> None:
    """Perhaps it starts just now."""
    with pytest.raises(TemporaryEngineError, match="cannot be reached on load"):
        await UrlHook("http://127.0.0.1:1", timeout_s=5).run("load", b"")


async def test_token_is_read_at_each_call(listener: Listener, tmp_path: Path) -> None:
    """So that it can be renewed; without its file nothing is sent."""
    file = tmp_path / "token"
    hook = UrlHook(listener.url, timeout_s=5, token_file=file)
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        await hook.run("load", b"")
    file.unlink()
    with pytest.raises(TemporaryEngineError, match="token cannot be read"):
        await hook.run("load", b"")

    assert ["Bearer one", "Bearer two"] == [token for _, _, token in listener.seen]


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (("https://app/hook",), UrlHook),
        (("http://app:1/hook",), UrlHook),
        (("/opt/hook",), Hook),
        (("curl", "https://app/hook"), Hook),
    ],
)
def test_one_address_alone_is_no_command(target: tuple[str, ...], kind: type) -> None:
    """A command may well have an address among its arguments."""
    assert kind is type(open_hook(target, timeout_s=5, environment={}))
