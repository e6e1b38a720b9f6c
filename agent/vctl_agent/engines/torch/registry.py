"""Which models this process serves, and who is using them.

The rule to keep: everything here is read and changed in the event loop's thread only. A request
takes its adapter object once and keeps it to its end; unloading removes a name, nothing else, and
replacing gives a name another object.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from vctl_agent.engines.torch.checkpoint import Base
from vctl_agent.engines.torch.lora import Adapter, NoAdapterError, load_adapter
from vctl_agent.engines.torch.openai import ApiError
from vctl_plans.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class Limits:
    """What adapters a process takes."""

    max_loras: int
    max_rank: int


class Registry:
    """The base model under its name, and the adapters that were loaded under theirs."""

    def __init__(self, base: Base, *, name: str, limits: Limits) -> None:
        self.base = base
        self.base_name = name
        self.limits = limits
        self._adapters: dict[str, Adapter] = {}
        self._inflight: Counter[str] = Counter()
        self._changing = asyncio.Lock()
        self._is_swapping = False
        self._freed = asyncio.Event()  # set whenever a request has ended

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters that new requests can name, in the order of their loading."""
        return tuple(self._adapters.values())

    @property
    def inflight(self) -> Mapping[str, int]:
        """How many requests use each model now; a model without any is not listed."""
        return dict(self._inflight)

    async def load(self, name: str, path: str) -> Adapter:
        """Load an adapter under a name that is not taken; one change at a time.

        Raises:
            ApiError: 400 for a name that is taken, no room, or an adapter that does not fit; 404
                when there is no adapter at the path. Nothing is registered then.
        """
        async with self._changing:
            self._check_free(name)
            return await self._load(name, path)

    async def replace(self, name: str, path: str) -> Adapter:
        """Load an adapter under a name, taken or not; requests finish on what they began with.

        Raises:
            ApiError: As of `load`; the former one stays then.
        """
        async with self._changing:
            return await self._load(name, path)

    async def _load(self, name: str, path: str) -> Adapter:
        self._check_loadable(name, path)
        try:
            adapter = await asyncio.to_thread(
                load_adapter, name, path, base=self.base, max_rank=self.limits.max_rank
            )
        except NoAdapterError as cause:
            raise ApiError.not_found(cause.message, param="lora_path") from cause
        except ArtifactError as cause:
            raise ApiError(cause.message, param="lora_path") from cause
        self._adapters[name] = adapter
        return adapter

    def unload(self, name: str) -> None:
        """Forget a name at once; requests that use its adapter finish on it.

        Raises:
            ApiError: 404 for a name that is not loaded.
        """
        if self._adapters.pop(name, None) is None:
            message = f"The lora adapter {name!r} cannot be found."
            raise ApiError.not_found(message, param="lora_name")

    async def swap(self, load: Callable[[], Base], *, within_s: float) -> Base:
        """Put another base in the place of the present one, once nobody uses that.

        New requests are refused from the beginning to the end of it, so none meets half of each.
        Adapters are gone with their base. The old base is let go only when the new one is loaded:
        a base that cannot be loaded changes nothing.

        Args:
            load: Loads the base, in a thread.
            within_s: How long running requests may take to finish.

        Raises:
            ApiError: 503 when they take longer, 400 for what is no base; nothing changed then.
        """
        async with self._changing:
            self._is_swapping = True
            try:
                await self._wait_for_all(within_s)
                base = await asyncio.to_thread(load)
            except ArtifactError as cause:
                raise ApiError(cause.message, param="path") from cause
            else:
                self.base = base
                self._adapters.clear()
                return base
            finally:
                self._is_swapping = False

    async def _wait_for_all(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while self._inflight:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError as cause:
            running = sum(self._inflight.values())
            raise _unavailable(f"{running} requests still run after {within_s:g} s") from cause

    @contextmanager
    def use(self, model: str) -> Iterator[Adapter | None]:
        """Count a request as in flight and give it the model's adapter, None for the base.

        Raises:
            ApiError: 404 for a model that is not served, 503 while the base is swapped.
        """
        if self._is_swapping:
            raise _unavailable("The base model is being swapped.")
        adapter = self._adapters.get(model)
        if adapter is None and model != self.base_name:
            raise ApiError.not_found(f"The model {model!r} does not exist.", param="model")
        self._inflight[model] += 1
        try:
            yield adapter
        finally:
            self._inflight[model] -= 1
            if not self._inflight[model]:
                del self._inflight[model]
            self._freed.set()

    def _check_free(self, name: str) -> None:
        if name in self._adapters:
            message = f"The lora adapter {name!r} has already been loaded."
            raise ApiError.invalid(message, param="lora_name")

    def _check_loadable(self, name: str, path: str) -> None:
        if name == self.base_name:
            message = f"The lora adapter {name!r} conflicts with the served base model."
            raise ApiError.invalid(message, param="lora_name")
        if not Path(path).is_absolute():
            raise ApiError.invalid(f"lora_path {path!r} is not absolute.", param="lora_path")
        if name not in self._adapters and len(self._adapters) >= self.limits.max_loras:
            message = (
                f"No room for the lora adapter {name!r}: {len(self._adapters)} are loaded, and"
                f" --max-loras is {self.limits.max_loras}. Unload one first."
            )
            raise ApiError.invalid(message)


def _unavailable(message: str) -> ApiError:
    return ApiError(message, status=HTTPStatus.SERVICE_UNAVAILABLE, kind="ServiceUnavailableError")
