"""The release's prompt in what the engine gets, and a release whose prompt cannot be read."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.gateway.support import a_release, a_route, ready
from tests.weights.building import fill
from vctl_agent.gateway.call import engine_body, read_call
from vctl_agent.gateway.live import Acted, Live
from vctl_agent.gateway.prompts import Prompts
from vctl_agent.gateway.serving import CHATS
from vctl_agent.gateway.state import Known, ReleaseAt, RouteAt
from vctl_agent.gateway.target import Target
from vctl_agent.local import AgentState
from vctl_plans.prompt import Form

RELEASE = a_release(1)
KNOWN = Known(
    routes={"support": RouteAt(5, a_route(1))}, releases={("support", 1): ReleaseAt(3, RELEASE)}
)
CHAT = {"model": "support", "messages": [{"role": "user", "content": "Hello"}], "seed": 1}


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    fill(tmp_path / "root", {"prompt.yaml": "system_file: s.txt", "s.txt": "Be kind."})
    return tmp_path / "root"


def told(prompt: str) -> AgentState:
    """Return the agent's word that the release is ready with this prompt."""
    state = ready(RELEASE)
    here = tuple(msgspec.structs.replace(each, prompt=prompt) for each in state.ready)
    return msgspec.structs.replace(state, ready=here)


def a_live(prompt: str) -> Live:
    return Live(Acted(known=KNOWN, agent=told(prompt)), prefix="/p/", clock=lambda: 0.0)


def sent(
    target: Target, call: dict[str, object], *, form: Form | None = Form.CHAT
) -> dict[str, object]:
    body = engine_body(read_call(json.dumps(call).encode()), target, form=form)
    found: dict[str, object] = json.loads(body)
    return found


def test_chat_gets_the_releases_prompt_and_keeps_the_rest(prompt: Path) -> None:
    """The salt is the one that it had: the text is in the prompt itself."""
    target = a_live(str(prompt)).targets["support", 1]
    plain = a_live("").targets["support", 1]

    assert {
        **CHAT,
        "model": target.model,
        "cache_salt": plain.salt,
        "messages": [{"role": "system", "content": "Be kind."}, *CHAT["messages"]],  # type: ignore[misc]
    } == sent(target, CHAT)


@pytest.mark.parametrize(
    ("path", "body", "added"),
    [
        ("/v1/responses", {"input": "Hello"}, {"instructions": "Be kind."}),
        ("/v1/messages", {"messages": [], "max_tokens": 1}, {"system": "Be kind."}),
        ("/v1/messages/count_tokens", {"messages": []}, {"system": "Be kind."}),
        ("/v1/completions", {"prompt": "Hello", "messages": []}, {}),
        ("/v1/embeddings", {"input": "Hello"}, {}),
    ],
)
def test_each_way_to_ask_for_a_chat_gets_the_prompt_in_its_own_field(
    prompt: Path, path: str, body: dict[str, object], added: dict[str, object]
) -> None:
    """And what is no chat gets none."""
    target = a_live(str(prompt)).targets["support", 1]

    own = {"model": target.model, "cache_salt": target.salt}
    found = sent(target, {"model": "support", **body}, form=CHATS.get(path))
    assert {**body, **own, **added} == found


def test_completion_gets_none(prompt: Path) -> None:
    """It has no messages; also one that says that it has."""
    target = a_live(str(prompt)).targets["support", 1]

    assert CHAT["messages"] == sent(target, CHAT, form=None)["messages"]


def test_release_without_one_is_sent_as_it_came() -> None:
    """The application has applied its own."""
    assert CHAT["messages"] == sent(a_live("").targets["support", 1], CHAT)["messages"]


def test_release_whose_prompt_cannot_be_read_is_not_ready(tmp_path: Path, prompt: Path) -> None:
    """Neither for clients nor for peers; until the agent's next word, when it can."""
    live = a_live(str(tmp_path / "gone"))
    assert ({}, {}) == (live.targets, live.loaded)

    prompt.rename(tmp_path / "gone")
    live.accept(told(str(tmp_path / "gone")))
    assert {("support", 1)} == set(live.targets) == set(live.loaded)


def test_prompt_is_read_once_while_it_is_named(prompt: Path) -> None:
    """What lies under a root never changes; what is not named any more is forgotten."""
    prompts = Prompts()
    first = prompts.of(told(str(prompt)))[str(prompt)]
    (prompt / "s.txt").write_text("Be rude.")

    assert first is prompts.of(told(str(prompt)))[str(prompt)]
    assert prompts.of(told("")) == {}
    assert prompts.of(None) == {}
    assert "Be rude." == prompts.of(told(str(prompt)))[str(prompt)].system
