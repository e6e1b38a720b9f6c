"""What docs/hooks.md and docs/engines.md show is so."""

import re
from pathlib import Path

import msgspec
import pytest

from vctl_agent.engines.hook import Told
from vctl_agent.settings import read_settings
from vctl_plans.capability import Capability

DOCS = Path(__file__).parents[2] / "docs"


def test_description_of_the_page_is_taken_and_shows_every_field() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", (DOCS / "hooks.md").read_text(), re.DOTALL)
    told = msgspec.json.decode(shown, type=Told)

    assert set(Told.__struct_fields__) == set(msgspec.json.decode(shown))
    assert "support@0123456789ab" == told.adapters[0].name
    assert told.facts.can(Capability.FLUSH)
    assert "--model-control-mode=explicit" == told.facts.remedy(Capability.SWAP_BASE)


@pytest.mark.parametrize("page", ["hooks.md", "engines.md"])
def test_every_capability_is_named(page: str) -> None:
    text = (DOCS / page).read_text()

    assert [] == [each for each in Capability if f"`{each}`" not in text]


@pytest.mark.parametrize("page", ["hooks.md", "engines.md"])
def test_every_setting_of_hooks_and_engines_is_one(page: str) -> None:
    """And is told with the time that it has."""
    text = (DOCS / page).read_text()
    named = set(re.findall(r"`--((?:hook|engine)[a-z-]*)", text))
    values = {"engine": "hook", "engine-hook": "/x", "engine-url": "http://e"}
    arguments = [f"--{name}={values.get(name, '60s')}" for name in named | set(values)]

    read_settings(arguments, {"VCTL_FLEET": "dev"})
    assert {"hooks.md": "engine-hook-timeout", "engines.md": "engine-admin-key-file"}[page] in named
