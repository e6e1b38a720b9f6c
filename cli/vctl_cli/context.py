"""Where a command acts: which fleet, which service, which etcd.

Sources, the first that says something: option, variable, context of the configuration file,
default. A context is translated into the variables that it stands for, so that there is one reader
of settings and one text for each problem.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vctl_cli.options import Shared
from vctl_plans.errors import PlanError, SettingsError
from vctl_plans.keys import DEFAULT_PREFIX, Keys
from vctl_plans.names import suggestion
from vctl_plans.store.settings import StoreSettings
from vctl_plans.units import duration_s

DEFAULT_FLEET = "default"
ATTEMPTS_PER_BUDGET = 2.5  # the store's calls try for this many times `timeout_s` in all


class NamedContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """One context of the configuration file. A password or token stands in a file of its own."""

    fleet: str = ""
    prefix: str = ""  # root of vctl's keys
    endpoints: str | list[str] = ""
    service: str = ""
    cacert: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The configuration file."""

    current_context: str = ""
    contexts: dict[str, NamedContext] = {}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command acts."""

    keys: Keys
    settings: StoreSettings
    service: str = ""
    timeout_s: float | None = None


def resolve(shared: Shared, env: Mapping[str, str], config_path: Path) -> Target:
    """Return where the command acts.

    Raises:
        SettingsError: The configuration or a variable is wrong.
        PlanError: `--timeout` is no duration, or the fleet's name is none.
    """
    chosen = _chosen(shared, env, config_path)
    from_context = _variables(chosen, env)
    from_options = {"VCTL_FLEET": shared.fleet, "VCTL_ENDPOINTS": shared.endpoints}
    variables = _filled(from_context) | _filled(env) | _filled(from_options)
    timeout_s = duration_s(_number(shared.timeout), path="--timeout") if shared.timeout else None
    settings = StoreSettings.from_environment(variables)
    if timeout_s is not None:
        limit_s = min(settings.timeout_s, max(timeout_s, 0.1) / ATTEMPTS_PER_BUDGET)
        settings = msgspec.structs.replace(settings, timeout_s=limit_s)
    prefix = variables.get("VCTL_PREFIX", DEFAULT_PREFIX).rstrip("/")
    return Target(
        keys=Keys(variables.get("VCTL_FLEET", DEFAULT_FLEET), prefix),
        settings=settings,
        service=variables.get("VCTL_SERVICE", ""),
        timeout_s=timeout_s,
    )


def _variables(chosen: NamedContext, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a context stands for; those of etcdctl that are set win over it."""
    listed = chosen.endpoints
    of_etcd = {
        "ENDPOINTS": listed if isinstance(listed, str) else ",".join(listed),
        "CACERT": chosen.cacert,
        "CERT": chosen.cert,
        "KEY": chosen.key,
        "USER": chosen.user,
    }
    found = {f"VCTL_{k}": v for k, v in of_etcd.items() if not env.get(f"ETCDCTL_{k}")}
    if _has_token(env):
        found.pop("VCTL_USER", None)  # the environment says otherwise who we are
    elif chosen.token_file and not _has_user(env):
        found["VCTL_TOKEN_FILE"] = str(Path(chosen.token_file).expanduser())
    elif chosen.password_file and not _has_user(env):
        found["VCTL_PASSWORD"] = _password(Path(chosen.password_file))
    return found | {
        "VCTL_FLEET": chosen.fleet,
        "VCTL_PREFIX": chosen.prefix,
        "VCTL_SERVICE": chosen.service,
    }


def _has_user(env: Mapping[str, str]) -> bool:
    """Whether the environment names the user, and so the context's password is another's."""
    return bool(env.get("VCTL_USER") or env.get("ETCDCTL_USER"))


def _has_token(env: Mapping[str, str]) -> bool:
    names = ("VCTL_TOKEN", "VCTL_TOKEN_FILE", "ETCDCTL_AUTH_JWT_TOKEN")
    return any(env.get(name) for name in names)


def _password(path: Path) -> str:
    try:
        return path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as cause:
        hint = "name another: vctl config set CONTEXT --password-file FILE"
        raise SettingsError(
            [f"password-file: {path} cannot be read: {cause}"], hint=hint
        ) from cause


def _filled(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value}


def _number(text: str) -> str | float:
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def _chosen(shared: Shared, env: Mapping[str, str], path: Path) -> NamedContext:
    name = shared.context or env.get("VCTL_CONTEXT", "")
    if not path.is_file():
        if name:
            hint = f"make it: vctl config set {name} --fleet NAME --endpoints URL"
            raise SettingsError([f"context {name!r}: there is no {path}"], hint=hint)
        return NamedContext()
    config = read_config(path)
    name = name or config.current_context
    if name and name not in config.contexts:
        hint = suggestion(name, config.contexts)
        raise SettingsError([f"{path} has no context {name!r}"], hint=hint)
    return config.contexts[name] if name else NamedContext()


def read_config(path: Path) -> Config:
    """Read the configuration file.

    Raises:
        SettingsError: It cannot be read, or does not validate.
    """
    import yaml  # noqa: PLC0415  most have no such file

    try:
        content: Any = yaml.safe_load(path.read_text())
        return msgspec.convert(content or {}, Config)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as cause:
        hint = "mend the file, or move it away and set the contexts anew: vctl config set"
        raise SettingsError([f"{path}: {cause}"], hint=hint) from cause


def required_service(given: str, target: Target) -> str:
    """Return the service that a command is about.

    Raises:
        PlanError: No source names one.
    """
    if given or target.service:
        return given or target.service
    raise PlanError(
        "which service?", path="service", hint="give --service NAME, or set VCTL_SERVICE"
    )
