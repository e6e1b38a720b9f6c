"""Long text on a terminal: through the pager that the user has, as git and gh do.

Only where a person reads: a pipe, a file and a terminal that fits it all get the text itself.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping

from vctl_cli.render.screen import Screen

VARIABLES = ("VCTL_PAGER", "PAGER")
_USUAL = "less"
# Leave if it fits, show colours, leave the text on the screen: git's defaults.
_LESS = "FRX"


def page(screen: Screen, text: str, env: Mapping[str, str]) -> None:
    """Show *text*, through a pager if it is longer than the terminal.

    Raises:
        VctlError: It cannot be written.
    """
    command = _command(env)
    if not (screen.can_draw and command and _is_long(screen, text)):
        screen.data(text)
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's
    try:
        subprocess.run(  # noqa: S603  the user's own
            command,
            input=screen.clean(text if text.endswith("\n") else f"{text}\n"),
            text=True,
            check=False,
            stdout=screen.out,
            env={"LESS": _LESS, **env},
        )
    finally:
        signal.signal(signal.SIGINT, before)


def _command(env: Mapping[str, str]) -> list[str]:
    """Return the pager's command; none where it is switched off or not there."""
    said = next((env[name] for name in VARIABLES if name in env), _USUAL)
    words = shlex.split(said)
    return words if words and words != ["cat"] and shutil.which(words[0]) else []


def _is_long(screen: Screen, text: str) -> bool:
    try:
        lines = os.get_terminal_size(screen.out.fileno()).lines
    except (OSError, ValueError):
        return False
    return text.count("\n") + 1 >= lines
