"""An engine in memory, for tests of the agent: does as it is told, or fails as it is scripted."""

from vctl_agent.engines.port import Description, Resident
from vctl_plans.base import SWAP_BASE
from vctl_plans.errors import EngineError, TemporaryEngineError


class FakeEngine:
    """An engine with scripted failures; `calls` lists what it was asked to change."""

    capabilities: tuple[str, ...] = (SWAP_BASE,)

    def __init__(self, *, max_adapters: int = 8) -> None:
        self.incarnation = "fake-1"
        self.max_adapters = max_adapters
        self.adapters: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.failures: dict[str, EngineError] = {}  # by method
        self.free_memory: float | None = None
        self.base_path = ""
        self.cached = 0  # entries; anything that is loaded or probed may leave some
        self.keeps_cache = False  # swaps its base and flushes nothing
        self.keeps_incarnation = False  # swaps its base and says that it is as it was
        self.is_away = False
        self.lies = False  # says yes and does nothing

    def restart(self) -> None:
        """Lose everything, as a process that starts anew."""
        self.base_path = ""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.incarnation = f"fake-{int(self.incarnation.removeprefix('fake-')) + 1}"
        self.adapters.clear()
        self.cached = 0

    async def describe(self) -> Description:
        """Return what it holds."""
        self._meet("describe", "")
        held = tuple(Resident(name, path) for name, path in self.adapters.items())
        return Description(
            kind="fake",
            version="1",
            incarnation=self.incarnation,
            base="base",
            base_path=self.base_path,
            cached=self.cached,
            max_adapters=self.max_adapters,
            adapters=held,
            free_memory=self.free_memory,
        )

    async def load(self, name: str, path: str) -> None:
        """Hold an adapter."""
        self._meet("load", name)
        if not self.lies:
            self.adapters[name] = path

    async def unload(self, name: str) -> None:
        """Let an adapter go."""
        self._meet("unload", name)
        if not self.lies:
            self.adapters.pop(name, None)

    async def probe(self, name: str) -> None:
        """Find nothing wrong, unless scripted."""
        self._meet("probe", name)
        self.cached += 1

    async def swap_base(self, path: str) -> None:
        """Hold another base, and nothing else."""
        self._meet("swap_base", path)
        if self.lies or path == self.base_path:
            return
        cached, incarnation = self.cached, self.incarnation
        self._begin_anew()
        self.base_path = path
        self.cached = cached if self.keeps_cache else 0
        self.incarnation = incarnation if self.keeps_incarnation else self.incarnation

    async def close(self) -> None:
        """Do nothing."""

    def _meet(self, method: str, name: str) -> None:
        if method != "describe":
            self.calls.append((method, name))
        if self.is_away:
            raise TemporaryEngineError("the engine does not answer")
        if method in self.failures:
            raise self.failures[method]
