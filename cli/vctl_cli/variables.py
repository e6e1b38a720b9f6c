"""Variables of plan files: `${name}` in a value, given as `--set name=value`.

The rule to keep: a value never makes structure. It is put into one scalar of the YAML before its
type is told, so `weight: ${share}` is a number where a number is given, and what is in quotes stays
text; fields' names are never replaced. A name that nothing gives, and one that nothing asks for,
are both errors: a plan that is half filled in must not start.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from vctl_plans.errors import PlanError
from vctl_plans.names import suggestion

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_USE = re.compile(r"\$(\$(?=\{)|\{([^}]*)\}?)")

FLAG = "--set"


def given(texts: Iterable[str]) -> dict[str, str]:
    """Return the variables of *texts*, each `name=value`.

    Raises:
        PlanError: One is not that, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, is_there, value = text.partition("=")
        if not is_there or not re.fullmatch(_NAME, name):
            raise PlanError(f"{text!r} is no variable: write name=value", path=FLAG)
        if name in found:
            raise PlanError(f"{name} is given twice", path=FLAG, hint="give each variable once")
        found[name] = value
    return found


def filled(text: str, values: Mapping[str, str], *, used: set[str], where: str) -> str:
    """Return *text* with each `${name}` replaced; `$${` stands for `${` itself.

    Args:
        text: One value of a plan file.
        values: The variables.
        used: Gets the names that were asked for.
        where: The file and line, for messages.

    Raises:
        PlanError: A name is none, or nothing gives it.
    """

    def value(match: re.Match[str]) -> str:
        name = match[2]
        if name is None:
            return "$"
        if not re.fullmatch(_NAME, name) or not match[0].endswith("}"):
            hint = "write ${name}; for the text ${ itself write $${"
            raise PlanError(f"{where}: {match[0]} is no variable", hint=hint)
        if name not in values:
            hint = f"give it: {FLAG} {name}=..."
            hint += f"; given: {', '.join(sorted(values))}" if values else ""
            raise PlanError(f"{where}: variable {name} is not given", hint=hint)
        used.add(name)
        return values[name]

    return _USE.sub(value, text)


def escaped(text: str) -> str:
    """Return *text* as it has to stand in a plan file, where `${` begins a variable."""
    return text.replace("${", "$${")


def refuse_unused(values: Mapping[str, str], used: Collection[str], *, known: str) -> None:
    """Refuse a variable that no plan asks for: its name may be a slip.

    Raises:
        PlanError: With the names that are asked for.
    """
    for name in values:
        if name not in used:
            hint = suggestion(name, used) if used else f"{known} has no variables"
            raise PlanError(f"{name}: no ${{{name}}} is in {known}", path=FLAG, hint=hint)
