"""How a program gets its settings: flag, else `VCTL_*` variable, else YAML file, else default.

One struct a program holds all settings; flags, variables and the file's fields are made of its
fields. All problems are reported at once, each with the place where the value came from.
"""

import argparse
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from vctl_plans.errors import SettingsError
from vctl_plans.names import suggestion

T = TypeVar("T", bound=msgspec.Struct)

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def load(kind: type[T], *, program: str, argv: Sequence[str], env: Mapping[str, str]) -> T:
    """Return the settings of *program*.

    Args:
        kind: A msgspec struct; a field's help is `Meta(description=...)` of its annotation.
        program: The program's name, for ``--help``.
        argv: The arguments after the program's name.
        env: The environment.

    Raises:
        SettingsError: Every value that is missing or not allowed.
        SystemExit: ``--help``, or an argument that is no flag (argparse's own message, exit 2).
    """
    flags = _parser(kind, program).parse_args(argv)
    problems: list[str] = []
    chosen: dict[str, tuple[Any, str]] = {}
    for name, value in _file(flags.config, kind, problems).items():
        chosen[name] = (value, f"{flags.config}: {name}")
    for field in msgspec.structs.fields(kind):
        variable = f"VCTL_{field.name.upper()}"
        if env.get(variable):
            chosen[field.name] = (env[variable], variable)
        given = getattr(flags, field.name)
        if given is not None:
            chosen[field.name] = (given, f"--{field.name.replace('_', '-')}")
    values = _converted(kind, chosen, problems)
    if problems:
        raise SettingsError(problems, hint=f"see {program} --help")
    return kind(**values)


def _parser(kind: type[msgspec.Struct], program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=(kind.__doc__ or "").split("\n", 1)[0],
        epilog="Every flag can also be a VCTL_* variable or a field of the --config file.",
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with the same settings")
    for field in msgspec.structs.fields(kind):
        base, help_text = _annotation(field.type)
        default = "" if field.required else f" (default: {field.default!r})"
        flag = f"--{field.name.replace('_', '-')}"
        if base is bool:
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=None, help=help_text + default)
        elif _is_many(base):
            parser.add_argument(flag, action="append", metavar="VALUE", help=f"{help_text}; repeat")
        else:
            parser.add_argument(
                flag, metavar="VALUE", help=(help_text + default).replace("%", "%%")
            )
    return parser


def _annotation(annotation: Any) -> tuple[Any, str]:
    """Return the plain type, and the description of an `Annotated` one."""
    if typing.get_origin(annotation) is typing.Annotated:
        base, *extra = typing.get_args(annotation)
        texts = [m.description for m in extra if isinstance(m, msgspec.Meta) and m.description]
        return base, " ".join(texts)
    return annotation, ""


def _is_many(base: Any) -> bool:
    return typing.get_origin(base) is tuple


def _file(path: str | None, kind: type[msgspec.Struct], problems: list[str]) -> dict[str, Any]:
    if not path:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as cause:
        problems.append(f"{path}: {cause}")
        return {}
    if not isinstance(content, dict):
        problems.append(f"{path}: settings are a mapping")
        return {}
    known = kind.__struct_fields__
    problems.extend(
        f"{path}: unknown setting {name!r}; {suggestion(str(name), known)}"
        for name in sorted(set(content) - set(known))
    )
    return {name: value for name, value in content.items() if name in known}


def _converted(
    kind: type[msgspec.Struct], chosen: Mapping[str, tuple[Any, str]], problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in chosen:
            if field.required:
                flag = field.name.replace("_", "-")
                problems.append(f"missing: --{flag} (or VCTL_{field.name.upper()})")
            continue
        value, origin = chosen[field.name]
        base, _ = _annotation(field.type)
        try:
            values[field.name] = msgspec.convert(_shaped(value, base), field.type, strict=False)
        except (msgspec.ValidationError, ValueError) as cause:
            problems.append(f"{origin}: {cause}")
    return values


def _shaped(value: Any, base: Any) -> Any:
    """Return text as the field's type wants it: lists by comma, booleans by word."""
    if isinstance(value, str) and _is_many(base):
        return [part for part in value.split(",") if part]
    if isinstance(value, str) and base is bool:
        word = value.lower()
        if word not in _TRUE | _FALSE:
            raise ValueError(f"{value!r} is neither true nor false")
        return word in _TRUE
    if isinstance(base, types.UnionType) and value == "":
        return None
    return value
