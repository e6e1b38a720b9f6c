"""How much an SGLang server has to do: GET /v1/loads."""

from http import HTTPStatus

import msgspec

from vctl_agent.engines.http import DESCRIBE_S, EngineHttp


class Load(msgspec.Struct, kw_only=True):
    """Of one rank."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    token_usage: float = 0.0  # share of its KV cache, 0 to 1


class _Loads(msgspec.Struct):
    loads: list[Load] = []


async def loads(http: EngineHttp) -> list[Load] | None:
    """Read the load of each rank; None: it does not tell."""
    response = await http.ask(
        "/v1/loads",
        query={"include": "core"},
        within_s=DESCRIBE_S,
        accept=(HTTPStatus.NOT_FOUND,),
    )
    return None if response.is_error else http.read(response, _Loads).loads


async def running(http: EngineHttp) -> int:
    """Return how many requests it has; one that does not tell is taken to have none."""
    found = await loads(http) or []
    return sum(each.num_running_reqs + each.num_waiting_reqs for each in found)
