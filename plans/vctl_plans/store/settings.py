"""Where etcd is and how to speak to it: endpoints, certificates, user, time limit.

The variables are etcdctl's, with a ``VCTL_`` form that wins over it. All problems are reported at
once, each naming its variable, and password and token are kept out of every text.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from vctl_plans.errors import Rejected, SettingsError

DEFAULT_ENDPOINT = "http://127.0.0.1:2379"
DEFAULT_TIMEOUT_S = 3.0
_DEFAULT_PORT = 2379
_ATTEMPTS_PER_CALL = 2.5
_LONGEST_TIMEOUT_S = 600

# Setting, vctl's variable, etcdctl's variable.
_VARIABLES = {
    "endpoints": ("VCTL_ENDPOINTS", "ETCDCTL_ENDPOINTS"),
    "ca_file": ("VCTL_CACERT", "ETCDCTL_CACERT"),
    "cert_file": ("VCTL_CERT", "ETCDCTL_CERT"),
    "key_file": ("VCTL_KEY", "ETCDCTL_KEY"),
    "user": ("VCTL_USER", "ETCDCTL_USER"),
    "password": ("VCTL_PASSWORD", "ETCDCTL_PASSWORD"),
    "token": ("VCTL_TOKEN", "ETCDCTL_AUTH_JWT_TOKEN"),
    "token_file": ("VCTL_TOKEN_FILE",),
    "timeout_s": ("VCTL_STORE_TIMEOUT_S",),
}


class Endpoint(msgspec.Struct, frozen=True):
    """One address of the cluster."""

    host: str
    port: int
    is_tls: bool

    @property
    def target(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as it is shown, with its scheme."""
        return f"{'https' if self.is_tls else 'http'}://{self.target}"


def parse_endpoint(text: str, *, is_tls: bool = False) -> Endpoint:
    """Read ``[http[s]://]host[:port]``; *is_tls* decides where no scheme is given.

    Raises:
        ValueError: It is no such address.
    """
    with_scheme = text if "://" in text else f"{'https' if is_tls else 'http'}://{text}"
    parts = urlsplit(with_scheme)
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"{text!r} has the scheme {parts.scheme!r}; http and https are known")
    is_blank = any(character.isspace() for character in text)
    if is_blank or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"{text!r} is not an address like http://host:2379")
    try:
        port = parts.port or _DEFAULT_PORT
    except ValueError as cause:
        raise ValueError(f"{text!r} has a port that is no number from 1 to 65535") from cause
    return Endpoint(parts.hostname, port, parts.scheme == "https")


class FieldProblems(SettingsError):  # noqa: N818  it carries several
    """Problems by field, so that whoever read the settings can use its own names for them."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__([f"{field}: {text}" for field, text in problems])
        self.by_field = problems


class StoreSettings(msgspec.Struct, frozen=True):
    """How to reach etcd.

    Raises:
        FieldProblems: Something is wrong; every problem is named.
    """

    endpoints: tuple[str, ...] = (DEFAULT_ENDPOINT,)
    ca_file: str = ""  # "": the system's certificate authorities
    cert_file: str = ""  # given together with key_file, or not at all
    key_file: str = ""
    user: str = ""
    password: str = ""
    token: str = ""  # that somebody else got for us; instead of a user
    token_file: str = ""  # holds it, and is read again when etcd refuses what it held
    timeout_s: float = DEFAULT_TIMEOUT_S  # of one attempt; a call makes several in 2.5 times this

    def __post_init__(self) -> None:
        problems = [*_endpoint_problems(self), *_file_problems(self), *_other_problems(self)]
        if problems:
            raise FieldProblems(problems)

    def __repr__(self) -> str:
        return f"StoreSettings(endpoints={self.endpoints!r}, user={self.user!r})"

    @property
    def has_token(self) -> bool:
        """Whether somebody else gets our tokens."""
        return bool(self.token or self.token_file)

    def present_token(self) -> str:
        """Return the token as it is now: a file may be written anew at any time.

        Raises:
            Rejected: The file cannot be read, or is empty.
        """
        if not self.token_file:
            return self.token
        try:
            found = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as cause:
            raise _no_token(f"{self.token_file} cannot be read") from cause
        if not found:
            raise _no_token(f"{self.token_file} is empty")
        return found

    @property
    def parsed_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints; those without a scheme speak TLS if any certificate file is set."""
        is_tls = bool(self.ca_file or self.cert_file)
        return tuple(parse_endpoint(text, is_tls=is_tls) for text in self.endpoints)

    @property
    def budget_s(self) -> float:
        """The time for all attempts of one call together."""
        return self.timeout_s * _ATTEMPTS_PER_CALL

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "StoreSettings":
        """Read ``VCTL_*`` and, where they are missing, ``ETCDCTL_*`` variables.

        Raises:
            SettingsError: Something is wrong; every problem names its variable.
        """
        names = {
            field: next((name for name in variables if env.get(name)), variables[0])
            for field, variables in _VARIABLES.items()
        }
        found = {field: env.get(name, "").strip() for field, name in names.items()}
        user, separator, password = found["user"].partition(":")
        try:
            return cls(
                endpoints=_split(found["endpoints"]) or (DEFAULT_ENDPOINT,),
                ca_file=found["ca_file"],
                cert_file=found["cert_file"],
                key_file=found["key_file"],
                user=user,
                password=password if separator else found["password"],
                token=found["token"],
                token_file=found["token_file"],
                timeout_s=_seconds(found["timeout_s"]),
            )
        except FieldProblems as error:
            named = [f"{names[field]}: {text}" for field, text in error.by_field]
            raise SettingsError(named) from error


def refused_token(reason: str) -> Rejected:
    """Return the error of a token that etcd does not accept, with nothing newer at hand."""
    return _no_token(f"etcd does not accept the token ({reason})")


def _no_token(text: str) -> Rejected:
    hint = "get a new token: into the file of VCTL_TOKEN_FILE, or as VCTL_TOKEN"
    return Rejected(text, code="UNAUTHENTICATED", hint=hint)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _seconds(text: str) -> float:
    try:
        return float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        return -1.0


def _endpoint_problems(settings: StoreSettings) -> Iterator[tuple[str, str]]:
    if not settings.endpoints:
        yield "endpoints", "at least one address is needed"
    for text in settings.endpoints:
        try:
            parse_endpoint(text)
        except ValueError as error:
            yield "endpoints", str(error)


def _file_problems(settings: StoreSettings) -> Iterator[tuple[str, str]]:
    for field in ("ca_file", "cert_file", "key_file", "token_file"):
        path = getattr(settings, field)
        if path and not Path(path).is_file():
            yield field, f"there is no file {path}"
    if settings.cert_file and not settings.key_file:
        yield "key_file", "a certificate needs its key"
    if settings.key_file and not settings.cert_file:
        yield "cert_file", "a key needs its certificate"


def _other_problems(settings: StoreSettings) -> Iterator[tuple[str, str]]:
    if settings.has_token and (settings.user or settings.password):
        yield "token_file" if settings.token_file else "token", "a token or a user, not both"
    if settings.token and settings.token_file:
        yield "token", "a token or a token's file, not both"
    if settings.user and not settings.password:
        yield "user", "a user needs a password (user:password)"
    if settings.password and not settings.user:
        yield "user", "a password needs a user (user:password)"
    if not 0 < settings.timeout_s <= _LONGEST_TIMEOUT_S:
        yield "timeout_s", f"must be a number of seconds, above 0, at most {_LONGEST_TIMEOUT_S}"
