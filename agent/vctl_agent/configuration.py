"""How a program gets its settings: flag, else variable, else the YAML file, else the default.

A program has one table of `Option`s; flags, variables, fields of the file and ``--help`` are made
of it. All problems are reported at once, each naming its flag and its variable. Passwords and
certificates of etcd are variables only.
"""

import argparse
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from vctl_plans import location
from vctl_plans.errors import PlanError, SettingsError
from vctl_plans.names import check_name, suggestion
from vctl_plans.store.settings import StoreSettings
from vctl_plans.units import bytes_of, duration_s

_SWITCH = {"on": True, "true": True, "yes": True, "1": True,
           "off": False, "false": False, "no": False, "0": False}  # fmt: skip
_MAX_PORT = 65535
_LONGEST_LABEL = 63
_LEVELS = ("debug", "info", "warning", "error")

MAX_SOCKET_BYTES = 107 - len(".new")
"""sockaddr_un holds 107 bytes and a zero (unix(7)); a socket is bound beside its place first."""


class Address(msgspec.Struct, frozen=True):
    """Where to listen; port 0: any that is free."""

    host: str
    port: int


class Option(msgspec.Struct, frozen=True):
    """One setting."""

    flag: str  # without the dashes; with ``_`` for ``-`` it is the field of the file and the struct
    variable: str
    default: str | None  # None: required
    read: Callable[[str], Any]  # raises ValueError or SettingsError, with text for a person
    help: str
    is_many: bool = False  # the flag may be repeated; in a variable, commas separate

    @property
    def field(self) -> str:
        """The setting's name in the file and in the struct."""
        return self.flag.replace("-", "_")

    @property
    def where(self) -> str:
        """The setting as a problem names it."""
        return f"--{self.flag} ({self.variable})"


def load(
    options: Sequence[Option],
    *,
    program: str,
    about: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> tuple[dict[str, Any], StoreSettings]:
    """Return each option's value by its field, and how to reach etcd.

    Args:
        options: The program's table.
        program: Its name, for ``--help``.
        about: What it does, in a line.
        arguments: The arguments after the program's name.
        environment: Its environment.

    Raises:
        SettingsError: All problems.
        SystemExit: ``--help``.
    """
    flags, unknown = _parser(options, program, about).parse_known_args(list(arguments))
    problems = [f"unknown argument {argument}" for argument in unknown]
    file = _file(flags.config, options, problems)
    values: dict[str, Any] = {}
    for option in options:
        texts = _texts(option, getattr(flags, option.field), environment, file)
        if texts is None:
            problems.append(f"{option.where}: is required")
            continue
        try:
            read = tuple(option.read(text) for text in texts)
            values[option.field] = read if option.is_many else read[0]
        except (ValueError, PlanError) as cause:
            problems.append(f"{option.where}: {cause}")
        except SettingsError as cause:  # of a file of its own, which may have many
            problems.extend(f"{option.where}: {problem}" for problem in cause.problems)
    store = _store(flags.endpoints, environment, problems)
    if problems:
        raise SettingsError(problems, hint=f"{program} --help lists all settings")
    return values, store


def is_on(
    option: Option,
    options: Sequence[Option],
    *,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> bool:
    """Return whether a switch is on, before anything else is read; `load` tells what is wrong.

    Args:
        option: The switch, which decides with which table to `load`.
        options: All that the file may set.
        arguments: The arguments after the program's name.
        environment: Its environment.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config")
    parser.add_argument(f"--{option.flag}", nargs="?", const="on")
    try:
        flags, _ = parser.parse_known_args(list(arguments))
        file = _file(flags.config, options, [])
        texts = _texts(option, getattr(flags, option.field), environment, file)
        return bool(option.read(texts[0])) if texts else False
    except (ValueError, argparse.ArgumentError):
        return False


def senseless(option: Option, because: str) -> Option:
    """Return the option as one that is refused where it is given: it makes no sense *because*."""

    def refuse(text: str) -> None:
        if text:
            raise ValueError(f"makes no sense {because}")

    return msgspec.structs.replace(option, default="", read=refuse)


def _texts(
    option: Option, given: Any, environment: Mapping[str, str], file: Mapping[str, str]
) -> list[str] | None:
    """Return the texts of an option from the strongest place that has it; None: nowhere."""
    if given is not None:
        return list(given) if option.is_many else [given]
    text = environment.get(option.variable, file.get(option.field, option.default))
    if text is None:
        return None
    return [part for part in text.split(",") if part] if option.is_many else [text]


def _parser(options: Sequence[Option], program: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"{about} Each flag is also a variable, and a field of the --config file.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with settings")
    for option in options:
        default = f"; default {option.default}" if option.default else ""
        required = "; required" if option.default is None else ""
        text = f"{option.help} ({option.variable}{default}{required})"
        more: dict[str, Any] = {"action": "append"} if option.is_many else {}
        if option.read is switch:  # a switch may stand alone: --passthrough is --passthrough on
            more = {"nargs": "?", "const": "on"}
        parser.add_argument(f"--{option.flag}", help=text.replace("%", "%%"), **more)
    parser.add_argument(
        "--endpoints",
        help="etcd's addresses, with commas"
        " (VCTL_ENDPOINTS, ETCDCTL_ENDPOINTS; default http://127.0.0.1:2379)",
    )
    return parser


def _file(path: str | None, options: Sequence[Option], problems: list[str]) -> dict[str, str]:
    """Return the file's fields as text."""
    if not path:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        problems.append(f"--config {path}: {cause}")
        return {}
    if not isinstance(content, dict):
        problems.append(f"--config {path}: settings are a mapping")
        return {}
    known = {option.field for option in options}
    strange = sorted(str(name) for name in content if name not in known)
    problems.extend(
        f"--config {path}: unknown setting {name!r}; {suggestion(name, known)}" for name in strange
    )
    return {name: _as_text(value) for name, value in content.items() if name in known}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return str(value)


def _store(
    endpoints: str | None, environment: Mapping[str, str], problems: list[str]
) -> StoreSettings:
    given = {} if endpoints is None else {"VCTL_ENDPOINTS": endpoints}
    try:
        return StoreSettings.from_environment({**environment, **given})
    except SettingsError as cause:
        problems.extend(cause.problems)
        return StoreSettings()


# -- readers -----------------------------------------------------------------------------------


def name(what: str) -> Callable[[str], str]:
    """Return a reader of names."""
    return lambda text: check_name(text, what=what)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of one of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


log_level = one_of(*_LEVELS)


def address(text: str) -> Address:
    """Read ``host:port``."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is not host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def url(text: str) -> str:
    """Read an address like ``http://127.0.0.1:8000``; empty for none."""
    parts = urlsplit(text)
    if text and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise ValueError(f"{text!r} is not an address like http://127.0.0.1:8000")
    return text.rstrip("/")


def label(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    key, separator, value = text.partition("=")
    if not separator or not value.isprintable() or len(value) > _LONGEST_LABEL:
        raise ValueError(f"{text!r} is not NAME=VALUE, with a value of up to {_LONGEST_LABEL}")
    return check_name(key, what="label"), value


def source_prefix(text: str) -> str:
    """Read what sources may lie below, as in ``https://models.example/`` or ``s3://``."""
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in location.SCHEMES or scheme == "file":
        raise ValueError("is not the beginning of a source, as in https://models.example/ or s3://")
    if location.shown(text) != text:
        raise ValueError("holds a user, a password or a query")
    return text


def socket_path(text: str) -> Path:
    """Read the path of a Unix socket."""
    if len(os.fsencode(text)) > MAX_SOCKET_BYTES:
        raise ValueError(f"a Unix socket's path has at most {MAX_SOCKET_BYTES} bytes")
    return Path(text)


def optional_path(text: str) -> Path | None:
    """Read a path; empty for none."""
    return Path(text) if text else None


def secret(text: str) -> str:
    """Read the secret in the file that *text* names; empty for none."""
    if not text:
        return ""
    try:
        found = Path(text).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise ValueError(f"cannot be read: {cause}") from cause
    if not found or not found.isprintable() or not found.isascii():
        raise ValueError(f"{text} must hold one line of ASCII")
    return found


def command(text: str) -> tuple[str, ...]:
    """Read a program and its arguments, quoted as for a shell that is never run; empty for none."""
    return tuple(shlex.split(text))


def key_prefix(text: str) -> str:
    """Read the root of vctl's keys."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError("must begin, and not end, with a slash")
    return text


def size_bytes(text: str) -> int:
    """Read a size like ``32MiB``, above zero."""
    size = bytes_of(text)
    if not size:
        raise ValueError(f"{text!r} is no size above zero")
    return size


def optional_size(text: str) -> int:
    """Read a size; empty for none, which is 0."""
    return size_bytes(text) if text else 0


def seconds(text: str) -> float:
    """Read a time like ``30s`` or ``10m``, or a plain number of seconds."""
    try:
        return duration_s(float(text) if text.replace(".", "", 1).isdecimal() else text, path="")
    except PlanError as cause:
        raise ValueError(cause.message) from cause


def at_least_one_second(text: str) -> float:
    """Read a time of one second or more."""
    found = seconds(text)
    if found < 1:
        raise ValueError(f"{text!r} is below one second")
    return found


def whole_number(text: str) -> int:
    """Read a whole number from 0."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def switch(text: str) -> bool:
    """Read on or off."""
    if text.lower() not in _SWITCH:
        raise ValueError(f"{text!r} is neither on nor off")
    return _SWITCH[text.lower()]
