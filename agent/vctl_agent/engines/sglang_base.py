"""Puts another base into an SGLang server, so that at any time it is known which one answers.

The steps, and the order that a change must keep: wait until nothing runs; write "changing" where
SGLang keeps the weights' version; hold what comes and abort what slipped in; update; confirm by
that version; flush; let go; write the new version. A crash between any two leaves "changing"
written, by which the next agent knows that no base is there for certain, and begins again.

The hard decision: SGLang can also take running requests back and have them go on with the new
weights (``retract``). Their answers would be of two bases, so what slipped in is aborted instead,
which its client can tell.
"""

import asyncio
import secrets
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from vctl_agent.engines.http import DESCRIBE_S, EngineHttp
from vctl_agent.engines.sglang_facts import ModelInfo, changing, settled
from vctl_agent.engines.sglang_loads import running
from vctl_plans.errors import (
    EngineError,
    PermanentEngineError,
    SuspectEngineError,
    TemporaryEngineError,
)

FINISH_S = 60.0
"""That running requests have to end."""

UPDATE_S = 600.0
"""That the weights have to be read."""

_POLL_S = 0.25
_HOLD_S = 30.0


class BaseUpdate:
    """One change of the base.

    Args:
        http: The server, with the key for its clients.
        admin: The server, with the key for its administration.
    """

    def __init__(self, http: EngineHttp, admin: EngineHttp) -> None:
        self._http = http
        self._admin = admin

    async def run(self, path: str) -> None:
        """Put the base at *path* in the place of the present one.

        Raises:
            TemporaryEngineError: Requests still run, or it is away; the present base serves on, or
                the change is to be begun again.
            PermanentEngineError: There is no model at *path*; nothing changed.
            SuspectEngineError: Nobody can know which weights it holds.
        """
        _check_model(path)
        await self._wait_until_idle()
        before = await model_info(self._http)
        await self._label(changing(before))
        try:
            await self._admin.ask("/pause_generation", body={"mode": "abort"}, within_s=_HOLD_S)
        except EngineError:
            await self._let_go(before)
            raise
        done = settled(secrets.token_hex(8))
        try:
            await self._update(path, mark=changing(before, towards=done))
        except EngineError as cause:
            raise SuspectEngineError(
                f"it is not known which weights the engine holds: {cause.message}",
                hint="restart the engine",
            ) from cause
        await self._admin.ask("/continue_generation", body={}, within_s=_HOLD_S)
        await self._label(done)

    async def _wait_until_idle(self) -> None:
        try:
            async with asyncio.timeout(FINISH_S):
                while await running(self._http):  # noqa: ASYNC110  it tells nobody of an end
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as cause:
            raise TemporaryEngineError(
                f"requests still run in the engine after {FINISH_S:g} s"
            ) from cause

    async def _let_go(self, before: ModelInfo) -> None:
        """Undo what was done before the weights were touched; what fails is begun again later."""
        if before.is_changing:
            return  # an earlier change may have touched them
        with suppress(EngineError):
            await self._admin.ask("/continue_generation", body={}, within_s=_HOLD_S)
            await self._label(before.weight_version or "default")

    async def _update(self, path: str, *, mark: str) -> None:
        """Update and flush, and confirm both.

        It answers 400 where nothing was updated, and also where all was updated and the cache was
        not flushed; in neither case the version moves (0.5.23), and texts decide nothing. So the
        cache is flushed and the same update made again: done twice it is done; refused twice, it is
        not known what there is, for SGLang goes back by reading the very directory that it failed
        on.
        """
        if not await self._updated(path, mark=mark):
            await self._flush()
            if not await self._updated(path, mark=mark):
                raise PermanentEngineError(f"the engine refused the base at {path} twice")
        await self._flush()

    async def _updated(self, path: str, *, mark: str) -> bool:
        body = {"model_path": path, "weight_version": mark, "flush_cache": True}
        answer = await self._admin.ask(
            "/update_weights_from_disk",
            body=body,
            within_s=UPDATE_S,
            accept=(HTTPStatus.BAD_REQUEST,),
        )
        found = await model_info(self._http)
        is_there = (found.model_path, found.weight_version) == (path, mark)
        if not answer.is_error and not is_there:
            raise PermanentEngineError(f"the engine says that it holds {found.model_path}")
        return is_there

    async def _flush(self) -> None:
        # Nothing runs and nothing comes, so there is nothing to wait for.
        await self._admin.ask("/flush_cache", method="POST", within_s=_HOLD_S)

    async def _label(self, version: str) -> None:
        body = {"new_version": version, "abort_all_requests": False}
        await self._admin.ask("/update_weight_version", body=body, within_s=_HOLD_S)
        found = (await model_info(self._http)).weight_version
        if found != version:
            raise TemporaryEngineError(f"the engine was told {version} and says {found}")


async def model_info(http: EngineHttp) -> ModelInfo:
    """Read which base it holds."""
    response = await http.ask("/model_info", within_s=DESCRIBE_S)
    return http.read(response, ModelInfo)


def _check_model(path: str) -> None:
    """Refuse what is no model before the engine touches its weights, where the agent can look."""
    folder = Path(path)
    if not folder.is_dir():
        return  # its first base may be a name, which it was started with
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise PermanentEngineError(f"{path} holds no config.json with safetensors beside it")
