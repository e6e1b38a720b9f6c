"""What lets us in at a web server: a bearer token from a file, or a password from netrc.

Both are read when a source is opened, so that a token that is renewed on disk counts at once. They
are sent to the place that they are given for and nowhere else: not to where it redirects, and never
into a message. S3 and the Hub have their own ways, see `s3` and `hub`.
"""

import base64
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from vctl_plans.errors import SourceRefused
from vctl_plans.location import is_under, shown

VARIABLE = "VCTL_SOURCE_TOKEN_FILE"


class TokenFile(msgspec.Struct, frozen=True):
    """A file with a bearer token, and where the token is good."""

    prefix: str
    path: Path


class Credentials(msgspec.Struct, frozen=True):
    """Where to look for what lets us in; no secret itself."""

    token_files: tuple[TokenFile, ...] = ()
    netrc_file: Path | None = None  # None: none is looked for

    def header(self, uri: str) -> str:
        """Return the Authorization header for a URI; empty for none.

        Raises:
            SourceRefused: The token's file cannot be read, or holds no token.
        """
        fitting = [each for each in self.token_files if is_under(uri, each.prefix)]
        if fitting:
            return f"Bearer {_token(max(fitting, key=lambda each: len(each.prefix)).path)}"
        return self._basic(uri)

    def _basic(self, uri: str) -> str:
        if self.netrc_file is None or not self.netrc_file.is_file():
            return ""
        try:
            found = netrc.netrc(self.netrc_file).hosts.get(urlsplit(uri).hostname or "")
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            # The cause is left out: a parse error repeats the line, which may hold a password.
            raise SourceRefused(f"{self.netrc_file}: cannot be read as netrc") from None
        if not found:
            return ""
        user, _, password = found
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def token_file(text: str) -> TokenFile:
    """Read ``PREFIX=FILE``, as in ``https://models.example/=/run/secrets/token``.

    Raises:
        ValueError: It is something else; the text for a person does not repeat it.
    """
    prefix, separator, path = text.rpartition("=")
    if not separator or not path or not prefix.startswith(("http://", "https://")):
        raise ValueError("is not PREFIX=FILE with a prefix like https://models.example/")
    if prefix != shown(prefix):
        raise ValueError("its prefix holds a user, a password or a query")
    return TokenFile(prefix, Path(path))


def from_environment(environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return what the variables say: `VCTL_SOURCE_TOKEN_FILE` (with commas), `NETRC`, `HOME`.

    Raises:
        ValueError: A variable does not say it rightly.
    """
    texts = [text for text in environment.get(VARIABLE, "").split(",") if text]
    return Credentials(tuple(token_file(text) for text in texts), netrc_of(environment))


def netrc_of(environment: Mapping[str, str]) -> Path | None:
    """Return where this user's netrc would be."""
    if "NETRC" in environment:
        return Path(environment["NETRC"]) if environment["NETRC"] else None
    return Path(environment["HOME"]) / ".netrc" if environment.get("HOME") else None


def _token(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise SourceRefused(f"{path}: the token cannot be read") from None
    if not token or not token.isprintable() or " " in token:
        raise SourceRefused(f"{path}: holds no token")
    return token
