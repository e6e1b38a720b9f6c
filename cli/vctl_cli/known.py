"""Which parameters have values that a fleet or the configuration file knows, for completion.

By the parameter's name, so that a command need not say it; a few only under their verb.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What a value is the name of."""

    SERVICE = "service"
    RELEASE = "release"
    NODE = "node"
    CONTEXT = "context"


_BY_NAME = {
    "service": Kind.SERVICE,
    "to": Kind.RELEASE,
    "release": Kind.RELEASE,
    "node": Kind.NODE,
    "nodes": Kind.NODE,
    "context": Kind.CONTEXT,
}
_BY_VERB = {
    ("show", "number"): Kind.RELEASE,
    ("use-context", "name"): Kind.CONTEXT,
    ("set", "name"): Kind.CONTEXT,
}


def kind_of(parameter: str, verb: str) -> Kind | None:
    """Return what a parameter of *verb* names; None: nothing that is known."""
    if (verb, parameter) == ("import", "service"):
        return None
    return _BY_VERB.get((verb, parameter)) or _BY_NAME.get(parameter)


def is_known(parameter: str, verb: str) -> bool:
    """Whether what exists can be suggested for a parameter of *verb*."""
    return kind_of(parameter, verb) is not None
