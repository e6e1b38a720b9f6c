"""Asks Prometheus for the values that a plan's guardrails name: instant queries, one value each.

No answer is no value, and no value decides nothing (`guardrail.judge_query`): every failure is
logged with its reason and comes back as None.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import structlog

_WITHIN_S = 5.0
_SHOWN = 200  # characters of what a server says that refuses
_QUERY_PATH = "/api/v1/query"

_log = structlog.get_logger(__name__)


class NoValue(Exception):  # noqa: N818  no error of ours: nothing can be said, and why
    """A query has not come to one value."""


class _Series(msgspec.Struct):
    value: tuple[float, str]  # Unix time, and the value as text: JSON has no NaN


class _Data(msgspec.Struct):
    resultType: str = ""  # noqa: N815  Prometheus's own name
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class Where(msgspec.Struct, frozen=True):
    """Where a Prometheus is; an empty address: there is none."""

    url: str  # up to ``/api/v1``
    token_file: Path | None = None  # holds a bearer token


class Prometheus:
    """The HTTP API of a Prometheus, or of what speaks like one.

    Args:
        where: Its address and token; the token is read at each query, for it is renewed.
    """

    def __init__(self, where: Where) -> None:
        # The environment may name a proxy and certificates (SSL_CERT_FILE).
        self._client = httpx.AsyncClient(base_url=where.url, timeout=_WITHIN_S)
        self._token_file = where.token_file

    async def close(self) -> None:
        """Drop connections."""
        await self._client.aclose()

    async def value(self, query: str) -> float | None:
        """Return the query's one value now; None when there is none, which is logged."""
        try:
            return one_value(await self._ask(query))
        except NoValue as cause:
            _log.warning("query has no value", query=query, cause=str(cause))
            return None

    async def _ask(self, query: str) -> bytes:
        try:
            headers = await asyncio.to_thread(self._headers)
            # httpx's limit is for each piece of an answer, ours for the whole.
            async with asyncio.timeout(_WITHIN_S):
                answer = await self._client.get(
                    _QUERY_PATH, params={"query": query}, headers=headers
                )
        except (httpx.HTTPError, OSError, UnicodeDecodeError) as cause:
            raise NoValue(str(cause) or type(cause).__name__) from cause
        if answer.is_success:
            return answer.content
        raise NoValue(f"answered {answer.status_code}: {answer.text[:_SHOWN]}")

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"authorization": f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"}


@contextlib.asynccontextmanager
async def opened(where: Where | None) -> AsyncIterator[Prometheus | None]:
    """Have a Prometheus inside the block, if there is one."""
    if where is None or not where.url:
        yield None
        return
    source = Prometheus(where)
    try:
        yield source
    finally:
        await source.close()


def one_value(body: bytes) -> float:
    """Return the value of an answer: a scalar's, or that of a vector of one series.

    Raises:
        NoValue: It has none, or more than one.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        if answer.status != "success" or answer.data is None:
            raise NoValue(answer.error or "the answer is not Prometheus's")
        if answer.data.resultType == "scalar":
            _, text = msgspec.json.decode(answer.data.result, type=tuple[float, str])
            return float(text)
        if answer.data.resultType != "vector":
            raise NoValue(f"a {answer.data.resultType} is no single value: use an instant query")
        series = msgspec.json.decode(answer.data.result, type=list[_Series])
        if len(series) != 1:
            raise NoValue(f"{len(series)} series where one was asked for: aggregate them")
        return float(series[0].value[1])
    except (msgspec.MsgspecError, RecursionError, ValueError) as cause:
        raise NoValue(f"the answer cannot be read: {cause}") from cause
