"""What msgspec says of a value that does not fit, in words for a person who wrote YAML.

Only words are made here; which value is wrong, and where, msgspec has found already.
"""

import re

_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "list": "a list",
    "object": "a mapping",
    "dict": "a mapping",
    "null": "nothing",
    "None": "nothing",
    "NoneType": "nothing",
}

_LIMITS = {
    ">": "must be above",
    ">=": "must be at least",
    "<": "must be below",
    "<=": "must be at most",
}

_WRONG_KIND = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_OUT_OF_RANGE = re.compile(r"Expected `\w+` ([<>]=?) (-?[\d.]+)")
_TOO_SHORT = re.compile(r"Expected `\w+` of length >= (\d+)")

NUMBERS = {"a whole number", "a number", "true or false"}


def plain(said: str) -> tuple[str, str]:
    """Return what is wrong in plain words, and what to do about it or "".

    What has no words here stays as msgspec says it.
    """
    if kinds := _WRONG_KIND.fullmatch(said):
        wanted, found = (_kind(each) for each in kinds.groups())
        is_unquoted = wanted == "text" and found in NUMBERS
        return f"must be {wanted}, and is {found}", "put it in quotes" if is_unquoted else ""
    if limit := _OUT_OF_RANGE.fullmatch(said):
        return f"{_LIMITS[limit[1]]} {float(limit[2]):g}", ""
    if length := _TOO_SHORT.fullmatch(said):
        return f"must have at least {length[1]}, and has fewer", ""
    return said[:1].lower() + said[1:], ""


def _kind(types: str) -> str:
    """Return the names of the types in ``int | str``, each once."""
    names = [_KINDS.get(each, each) for each in types.split(" | ")]
    return " or ".join(
        dict.fromkeys(n for n in names if n != "a whole number" or "a number" not in names)
    )
