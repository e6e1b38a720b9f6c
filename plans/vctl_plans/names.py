"""Which names are allowed, and the one name that an engine sees.

A name is a part of a key and of a path, so the rule is narrow and the same everywhere.
"""

import difflib
import re
from collections.abc import Iterable

from vctl_plans.errors import PlanError

MAX_NAME_CHARS = 63
ENGINE_DIGEST_CHARS = 12

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_ROOT = re.compile(r"b3:[0-9a-f]{64}")


def check_name(name: str, *, what: str) -> str:
    """Return *name*, or say what a name may be.

    Args:
        name: A fleet's, node's, service's, tenant's or group's name.
        what: The field, for the message.

    Raises:
        PlanError: Not 1 to 63 of ``a-z 0-9 . _ -``, beginning and ending with a letter or digit.
    """
    if not _NAME.fullmatch(name):
        raise PlanError(
            f"{name!r} is not a name: use 1 to {MAX_NAME_CHARS} of a-z 0-9 . _ -,"
            " beginning and ending with a letter or a digit",
            path=what,
        )
    return name


def check_root(root: str, *, what: str) -> str:
    """Return *root*, or say what a Merkle root looks like.

    Raises:
        PlanError: Not ``b3:`` and 64 hexadecimal digits.
    """
    if not _ROOT.fullmatch(root):
        raise PlanError(f"{root!r} is not a root: use b3: and 64 hexadecimal digits", path=what)
    return root


def is_root(text: str) -> bool:
    """Whether *text* is a Merkle root."""
    return bool(_ROOT.fullmatch(text))


def root_hex(root: str) -> str:
    """Return the 64 digits of a root: the name of its directory on a node."""
    return root.removeprefix("b3:")


def engine_name(service: str, root: str) -> str:
    """Return the adapter's name in the engine: its identity, so that no two versions share one.

    A changed byte is another name; prefix-cache entries of two versions cannot meet (DESIGN 5).
    """
    return f"{service}@{root_hex(root)[:ENGINE_DIGEST_CHARS]}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for a close miss, else what is known, else nothing."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(choices[:10])}" if choices else ""
