"""Faults on purpose, so that what watches engines can be tried: a file names who fails.

For tests and rehearsals of guardrails. The file is read at each request, so that a model can begin
to fail, and stop, while it serves. An engine that was started without one reads nothing.
"""

from pathlib import Path

from vctl_agent.engines.torch.openai import ApiError


class Faults:
    """Which models fail now.

    Args:
        file: One model's name a line; one that is not there names nobody. None: nobody ever fails.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def meet(self, model: str) -> None:
        """Fail if *model* is to fail.

        Raises:
            ApiError: 500.
        """
        if self._file is None:
            return
        try:
            names = self._file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        if model in names:
            message = f"{self._file} says that {model} fails."
            raise ApiError(message, status=500, kind="InternalServerError")
