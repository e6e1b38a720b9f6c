"""The configuration file as a person changes it through vctl: order stays, comments do not.

Only `current-context` and the fields of a context are changed, and never to something that would
not validate: the file is written whole or not at all.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vctl_cli.context import Config, NamedContext, read_config
from vctl_plans.errors import PlanError, SettingsError, VctlError
from vctl_plans.names import check_name, suggestion

FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(NamedContext))
"""What a context holds."""


def load(path: Path) -> Config:
    """Return the configuration; an empty one where there is no file.

    Raises:
        SettingsError: It cannot be read, or does not validate.
    """
    return read_config(path) if path.is_file() else Config()


def used(path: Path, name: str) -> None:
    """Make *name* the current context.

    Raises:
        PlanError: There is no such context.
    """
    known = load(path).contexts
    if name not in known:
        hint = suggestion(name, known) if known else "make one: vctl config set NAME --fleet F"
        raise PlanError(f"there is no context {name!r}", path="context", hint=hint)
    _change(path, lambda content: content | {"current-context": name})


def written(path: Path, name: str, fields: Mapping[str, str]) -> bool:
    """Set fields of a context, and make it if need be; return whether it is new.

    An empty value takes a field away. The first context that is made becomes the current one.
    """
    check_name(name, what="context")
    config = load(path)
    is_new = name not in config.contexts

    def change(content: dict[str, Any]) -> dict[str, Any]:
        contexts = dict(content.get("contexts") or {})
        merged = {**(contexts.get(name) or {}), **fields}
        contexts[name] = {field: value for field, value in merged.items() if value}
        current = content.get("current-context") or name
        return content | {"current-context": current, "contexts": contexts}

    _change(path, change)
    return is_new


def _change(path: Path, change: Any) -> None:
    try:
        content = yaml.safe_load(path.read_text()) if path.is_file() else {}
        changed = change(content or {})
        msgspec.convert(changed, Config)
        _write(path, yaml.safe_dump(changed, sort_keys=False, allow_unicode=True))
    except (yaml.YAMLError, msgspec.ValidationError) as cause:
        hint = "mend the file, or move it away and set the contexts anew: vctl config set"
        raise SettingsError([f"{path}: {cause}"], hint=hint) from cause
    except OSError as cause:
        hint = "another place for it: XDG_CONFIG_HOME"
        raise VctlError(
            f"{path} cannot be written: {cause.strerror or cause}", hint=hint
        ) from cause


def _write(path: Path, text: str) -> None:
    """Replace the file: after a crash it holds the old or the new, whole, for this user alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    real = path.resolve()  # a link to a file that is kept elsewhere stays one
    descriptor, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(real)
    except BaseException:  # also an interruption leaves no half-written file; raised again
        Path(temporary).unlink(missing_ok=True)
        raise
