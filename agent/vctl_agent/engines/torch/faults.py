"""Faults on purpose, so that what watches engines can be tried: a file names who fails, and how.

For tests and rehearsals of guardrails and probes. A line is the name of a model, whose requests
fail, or `stale` and a name: what that adapter caches lies, as if it were the base's, where the
base's own does, so either is answered from what the other left. A request's salt still keeps it
apart. The file is read at each request, so that a model can begin to fail, and stop, while it
serves. An engine that was started without one reads nothing.
"""

from pathlib import Path

from vctl_agent.engines.torch.openai import ApiError

_STALE = "stale"


class Faults:
    """Which models fail now.

    Args:
        file: A fault a line; one that is not there names nobody. None: nobody ever fails.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def meet(self, model: str) -> None:
        """Fail if *model* is to fail.

        Raises:
            ApiError: 500.
        """
        if model in self._lines():
            message = f"{self._file} says that {model} fails."
            raise ApiError(message, status=500, kind="InternalServerError")

    def is_stale(self, model: str) -> bool:
        """Whether *model* is answered from what others left in the cache."""
        return f"{_STALE} {model}" in self._lines()

    def _lines(self) -> list[str]:
        if self._file is None:
            return []
        try:
            return self._file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
