"""What docs/components.md shows to application authors works as it stands there."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.agent.support import SERVICE, Node, a_fleet, make_adapter, make_files, next_release
from vctl_agent.hook import Hook
from vctl_plans.document import golden_of, sources
from vctl_plans.errors import EngineError, PermanentEngineError, TemporaryEngineError
from vctl_plans.parsing import parse, require_built
from vctl_plans.phase import NodePhase
from vctl_plans.prompt import Template
from vctl_plans.release import Release
from vctl_plans.route import Route
from vctl_plans.weights import read_template

DOCS = Path(__file__).parents[2] / "docs" / "components.md"


def _blocks(language: str) -> list[str]:
    """Return the page's blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def test_plan_of_the_page_can_be_carried_out() -> None:
    """All three components at once."""
    text, _ = _blocks("yaml")
    document = parse(yaml.safe_load(text))

    require_built(document)
    assert ["adapter", "prompt", "index"] == [name.value for name in sources(document)]


def test_prompt_of_the_page_is_applied_as_it_says(tmp_path: Path) -> None:
    """All of its fields."""
    _, text = _blocks("yaml")
    files = {"prompt.yaml": text, "system.txt": "Be kind.\n", "chat.jinja": "{{ messages }}"}
    make_files(tmp_path / "p", files)

    assert Template(
        system="Be kind.",
        chat_template="{{ messages }}",
        chat_template_kwargs={"enable_thinking": False},
    ) == read_template(tmp_path / "p")


async def test_application_finds_the_prompt_of_a_release(tmp_path: Path) -> None:
    """And none where the release has none."""
    found: dict[str, Any] = {}
    exec(_blocks("python")[0], found)  # noqa: S102  our own page
    releases: dict[int, Release] = {}
    next_release(releases, adapter=make_adapter(tmp_path / "a1"))
    next_release(releases, prompt=make_files(tmp_path / "p1", {"system.txt": "You are kind."}))
    node = Node(tmp_path)
    node.reconciler.want(a_fleet(releases, route=Route(service=SERVICE, stable=1, candidate=2)))
    await node.settle(lambda: {node.phase(1), node.phase(2)} == {NodePhase.READY})

    told = [found["prompt_of"](tmp_path / "state", SERVICE, number) for number in (1, 2)]

    assert [None, "You are kind."] == told


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (422, PermanentEngineError),
        (503, TemporaryEngineError),
        (0, TemporaryEngineError),  # nobody listens
    ],
)
async def test_hook_of_the_page_tells_the_application(
    tmp_path: Path, status: int, kind: type[EngineError] | None
) -> None:
    """Its refusal is final, its absence is not."""
    asked: list[tuple[str, bytes]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append((request.path, await request.read()))
        return web.Response(status=status, text="no such index")

    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    if not status:
        await runner.cleanup()
    script = tmp_path / "hook.py"
    script.write_text(_blocks("python")[1])
    hook = Hook(
        (sys.executable, str(script), f"http://127.0.0.1:{port}"),
        timeout_s=30,
        environment={"PATH": os.environ["PATH"]},
    )
    document = b'{"event": "load", "release": 7}'
    try:
        async with asyncio.timeout(30):
            await hook.run("load", document)
        failure = None
    except EngineError as error:
        failure = error
    await runner.cleanup()

    assert kind is (None if failure is None else type(failure))
    assert ([("/releases/load", document)] if status else []) == asked
    assert failure is None or not status or "no such index" in failure.message


def test_golden_prompts_of_the_rollouts_page_are_a_plan() -> None:
    """As they stand there."""
    text = (DOCS.parent / "rollouts.md").read_text()
    (block,) = re.findall(r"```yaml\n(probes:.*?)```", text, re.DOTALL)
    plan = {"service": SERVICE, "strategy": "full-switch", "release": 1}

    golden = golden_of(parse({**plan, **yaml.safe_load(block)}))
    assert golden is not None
    assert 3 == len(golden.prompts)
