"""Engines asked without a gateway, by a name that somebody gave them, and what they list."""

import json
import urllib.request
from typing import Any

from tests.e2e.support import SERVICE, Fleet, Load


def post(url: str, **body: object) -> dict[str, Any]:
    """Post JSON; return the answer if it is an object."""
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        raw = response.read()
        found: dict[str, Any] = json.loads(raw) if raw.startswith(b"{") else {}
        return found


def ask_engine(url: str, *, max_tokens: int = 4) -> tuple[int, str]:
    """Ask an engine itself, by the service's name; 0 stands for no release."""
    answer = post(
        f"{url}/v1/completions",
        model=SERVICE, prompt="Hello", max_tokens=max_tokens, temperature=0,
    )  # fmt: skip
    return 0, str(answer["choices"][0]["text"])


def listed(fleet: Fleet) -> list[dict[str, str]]:
    """Return what each engine lists: name -> path."""
    found = []
    for url in fleet.dev.engine_urls.values():
        with urllib.request.urlopen(f"{url}/engine", timeout=30) as response:
            adapters = json.load(response)["adapters"]
        found.append({each["name"]: each["path"] for each in adapters})
    return found


class DirectLoad(Load):
    """Clients that call engines themselves."""

    def _keep_asking(self, url: str) -> None:
        while not self._stopping.is_set():
            try:
                self.answers.append(ask_engine(url, max_tokens=self.max_tokens))
            except (OSError, LookupError) as error:
                self.failures.append(f"{url}: {error}")
