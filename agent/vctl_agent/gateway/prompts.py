"""Reads the prompts that are applied to chats: each once, from the node's verified copy of it.

The directory's name is the prompt's root, and what lies there never changes, so what was read stays
right for as long as the agent names it.
"""

from pathlib import Path

import structlog

from vctl_agent.gateway.state import Templates
from vctl_agent.local import AgentState
from vctl_plans import weights
from vctl_plans.errors import ArtifactError, MalformedPrompt
from vctl_plans.prompt import Template

_log = structlog.get_logger()


class Prompts:
    """What was read."""

    def __init__(self) -> None:
        self._read: dict[str, Template] = {}
        self._said: set[str] = set()  # of which it was logged that they cannot be read

    def of(self, agent: AgentState | None) -> Templates:
        """Return the templates of what is ready; one that cannot be read is not among them.

        It is tried again with the agent's next word. The agent has read it before it said so: it
        can only be that the files are gone, or are not this user's to read.
        """
        named = {ready.prompt for ready in agent.ready if ready.prompt} if agent else set()
        self._read = {path: template for path, template in self._read.items() if path in named}
        self._said &= named
        for path in sorted(named - self._read.keys()):
            self._take(path)
        return self._read

    def _take(self, path: str) -> None:
        try:
            template = weights.read_template(Path(path))
            if template is None:
                raise MalformedPrompt(f"{path}: there is no {weights.PROMPT_FILE}")
        except ArtifactError as cause:
            if path not in self._said:
                _log.error("prompt unreadable: its release is not ready", error=cause.message)
                self._said.add(path)
            return
        self._read[path] = template
        self._said.discard(path)
