"""Requests to etcd's JSON gateway: endpoints, time limits, tokens, errors.

Only for requests that may be repeated: each is sent to one endpoint after the other until one
answers or the budget is spent.
"""

import random
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec

from vctl_plans.errors import Rejected, StoreError, StoreUnavailable
from vctl_plans.store.backoff import backoff_s
from vctl_plans.store.plain_http import Answer, MalformedAnswer, PlainHttp, TlsError
from vctl_plans.store.refusals import told
from vctl_plans.store.settings import Endpoint, StoreSettings, refused_token

if TYPE_CHECKING:
    import ssl

_OK, _NOT_FOUND = 200, 404
_NEW_TOKENS_PER_CALL = 2
_SHOWN_CHARACTERS = 100

# gRPC's status numbers, which the gateway puts into its JSON errors.
_STATUS_NAMES = {
    3: "INVALID_ARGUMENT",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    11: "OUT_OF_RANGE",
    16: "UNAUTHENTICATED",
}
# CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, ABORTED, INTERNAL, UNAVAILABLE: another member may answer.
_BROKEN_STATUSES = {1, 2, 4, 10, 13, 14}
# What etcd answers, as plain text, to a client whose certificate names a user.
_NO_CERTIFICATES = b"CommonName of client sending a request against gateway will be ignored"
_TOKEN_REFUSED = ("user name is empty", "revision of auth store is old", "invalid auth token")


_HARD = (ConnectionRefusedError, socket.gaierror, TlsError)
_HARD_S = 1.5
"""How long to try where every endpoint refuses: a server that is restarted has time to return."""
_HINT = "check that etcd runs and that the endpoints are right"
_TLS_HINT = (
    "the authority of etcd's certificate: ETCDCTL_CACERT;"
    " where etcd asks for one of ours: ETCDCTL_CERT and ETCDCTL_KEY"
)


class GatewayUnsuitable(StoreError):  # noqa: N818  as its siblings
    """This cluster can't be read over its JSON gateway: use gRPC."""


class _BrokenAttemptError(Exception):
    """An endpoint did not answer, or not as one that works.

    Args:
        cause: What went wrong on the way; None: it answered.
    """

    def __init__(self, reason: str, cause: Exception | None = None) -> None:
        super().__init__(reason)
        self.is_of_tls = isinstance(cause, TlsError)
        self.is_hard = isinstance(cause, _HARD)  # it will be the same in a moment


class _TokenRefusedError(Exception):
    """The server wants a (new) token."""


class GatewayHttp:
    """One connection to the gateway of one endpoint after the other.

    Args:
        settings: Endpoints, certificates, user, time limit of one attempt.
        budget_s: Seconds for all attempts of one request.
    """

    def __init__(self, settings: StoreSettings, budget_s: float) -> None:
        self._settings = settings
        self._budget_s = budget_s
        endpoints = settings.parsed_endpoints
        self._endpoints = random.sample(endpoints, len(endpoints))
        self._current = 0
        self._connection: PlainHttp | None = None
        self._token = ""
        self._date = ""  # of the last answer

    def ask(self, path: str, request: dict[str, object]) -> dict[str, Any]:
        """Send *request* until an endpoint answers.

        Raises:
            StoreUnavailable: None did in time; all that were tried are named, with why.
            GatewayUnsuitable: Use gRPC instead.
            Rejected: The server said no; `code` is gRPC's name for it.
        """
        begun = time.monotonic()
        deadline = begun + self._budget_s
        broken: dict[str, _BrokenAttemptError] = {}  # of each endpoint, the last
        attempt = new_tokens = 0
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                return self._attempt(path, request, min(left_s, self._settings.timeout_s))
            except _TokenRefusedError as error:
                new_tokens += 1
                self._renounce_token(error, is_last=new_tokens > _NEW_TOKENS_PER_CALL)
            except _BrokenAttemptError as error:
                broken[self._endpoint.url] = error
                self._rotate()
                is_vain = len(broken) == len(self._endpoints) and all(
                    each.is_hard for each in broken.values()
                )
                if is_vain:
                    deadline = min(deadline, begun + _HARD_S)
            time.sleep(max(0.0, min(backoff_s(attempt), deadline - time.monotonic())))
            attempt += 1
        raise self._unavailable(broken, time.monotonic() - begun)

    def _unavailable(
        self, broken: dict[str, _BrokenAttemptError], took_s: float
    ) -> StoreUnavailable:
        reasons = {url: str(error) for url, error in broken.items()}
        is_of_tls = any(error.is_of_tls for error in broken.values())
        return StoreUnavailable(
            f"etcd did not answer in {took_s:.1f} s: {told(reasons, self._settings)}",
            hint=_TLS_HINT if is_of_tls else _HINT,
        )

    def clock_ahead_s(self, asked_at: float, answered_at: float) -> float | None:
        """Return how far the clock of who answered last is ahead of ours; None: it did not tell.

        Args:
            asked_at: Our own clock when it was asked: the answer is of no earlier moment. The
                field is of whole seconds (RFC 9110, section 6.6.1), rounded down.
            answered_at: Our own clock when the answer was there.
        """
        from email.utils import parsedate_to_datetime  # noqa: PLC0415  only `doctor` asks

        try:
            then = parsedate_to_datetime(self._date).timestamp()
        except (TypeError, ValueError):
            return None
        if then + 1 < asked_at:
            return then + 1 - asked_at
        return max(0.0, then - answered_at)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _endpoint(self) -> Endpoint:
        return self._endpoints[self._current]

    def _rotate(self) -> None:
        self.close()
        self._current = (self._current + 1) % len(self._endpoints)

    def _renounce_token(self, error: _TokenRefusedError, *, is_last: bool) -> None:
        settings = self._settings
        if settings.has_token:
            if is_last or settings.present_token() == self._token:
                raise refused_token(str(error)) from error
            self._token = ""
            return
        if not settings.user and settings.cert_file:
            raise GatewayUnsuitable(f"the gateway does not know users by certificate ({error})")
        if is_last or not settings.user:
            raise Rejected(
                f"etcd wants to know who asks ({error})",
                code="UNAUTHENTICATED",
                hint="set ETCDCTL_USER=user:password, or VCTL_TOKEN_FILE",
            ) from error
        self._token = ""

    def _attempt(self, path: str, request: dict[str, object], timeout_s: float) -> dict[str, Any]:
        if self._settings.has_token:
            self._token = self._token or self._settings.present_token()
        elif self._settings.user and not self._token:
            self._token = self._authenticate(timeout_s)
        return self._post(path, request, timeout_s)

    def _authenticate(self, timeout_s: float) -> str:
        user, password = self._settings.user, self._settings.password
        request: dict[str, object] = {"name": user, "password": password}
        try:
            return str(self._post("/v3/auth/authenticate", request, timeout_s)["token"])
        except Rejected as error:
            if "authentication is not enabled" in error.message:
                return ""
            raise

    def _post(self, path: str, request: dict[str, object], timeout_s: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = self._token
        if self._connection is None:
            endpoint = self._endpoint
            tls = self._tls if endpoint.is_tls else None
            self._connection = PlainHttp(endpoint.host, endpoint.port, tls)
        try:
            answer = self._connection.post(
                path, msgspec.json.encode(request), headers, timeout_s=timeout_s
            )
        except (OSError, MalformedAnswer) as error:
            raise _BrokenAttemptError(_reason(error), error) from error
        self._date = answer.headers.get("date", "")
        if answer.status == _NOT_FOUND:
            raise GatewayUnsuitable(f"{self._endpoint.url} has no JSON gateway")
        if _NO_CERTIFICATES in answer.body:
            raise GatewayUnsuitable("the gateway does not know users by certificate")
        return _told(answer)

    def _tls(self) -> "ssl.SSLContext":
        import ssl  # noqa: PLC0415  many clusters on a loopback have none

        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context


def _reason(error: Exception) -> str:
    """Return what went wrong in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _told(received: Answer) -> dict[str, Any]:
    """Return what the gateway answered, or raise what its error means."""
    status, body = received.status, received.body
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = body[:_SHOWN_CHARACTERS].decode(errors="replace").strip()
        raise _BrokenAttemptError(f"HTTP {status} {text}") from error
    if not isinstance(answer, dict):
        raise _BrokenAttemptError(f"HTTP {status}, not an object")
    if status == _OK:
        return answer
    code = answer.get("code", 0)
    text = str(answer.get("message") or answer.get("error") or f"HTTP {status}")
    name = _STATUS_NAMES.get(code, str(code))
    if name == "UNAUTHENTICATED" or any(known in text for known in _TOKEN_REFUSED):
        raise _TokenRefusedError(text)
    if code in _BROKEN_STATUSES or code not in _STATUS_NAMES:
        raise _BrokenAttemptError(text)
    raise Rejected(f"etcd refused: {text}", code=name)
