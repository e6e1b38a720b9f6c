"""From a kind in the settings to the adapter that speaks to such an engine: one line a kind."""

from collections.abc import Callable

from vctl_agent.engines.port import Engine
from vctl_agent.settings import Settings


def _torch(settings: Settings) -> Engine:
    from vctl_agent.engines.torch_client import TorchEngine  # noqa: PLC0415  only what is used

    return TorchEngine(settings.engine_url)


_ADAPTERS: dict[str, Callable[[Settings], Engine]] = {"torch": _torch}


def open_engine(settings: Settings) -> Engine:
    """Return the adapter for the engine of *settings*; it connects when it is first asked."""
    return _ADAPTERS[settings.engine](settings)
