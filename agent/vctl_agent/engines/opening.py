"""From a kind in the settings to the adapter that speaks to such an engine: one line a kind."""

import os
from collections.abc import Callable
from pathlib import Path

from vctl_agent.engines.port import Engine
from vctl_agent.settings import Settings
from vctl_plans.errors import VctlError


def _vllm(settings: Settings) -> Engine:
    from vctl_agent.engines.vllm.client import VllmEngine  # noqa: PLC0415

    return VllmEngine(
        settings.engine_url,
        key=key_of(settings),
        max_adapters=settings.engine_max_adapters or None,
    )


def _torch(settings: Settings) -> Engine:
    from vctl_agent.engines.torch_client import TorchEngine  # noqa: PLC0415  only what is used

    return TorchEngine(settings.engine_url)


def _sglang(settings: Settings) -> Engine:
    from vctl_agent.engines.sglang import SglangEngine  # noqa: PLC0415

    return SglangEngine(
        settings.engine_url,
        key=key_of(settings),
        admin_key=_read_key(settings.engine_admin_key_file),
    )


def _hook(settings: Settings) -> Engine:
    from vctl_agent.engines.hook import open_hook_engine  # noqa: PLC0415

    return open_hook_engine(
        settings.engine_hook,
        engine_url=settings.engine_url,
        timeout_s=settings.engine_hook_timeout,
        environment=os.environ,
        key=key_of(settings),
        token_file=settings.hook_token_file,
    )


_ADAPTERS: dict[str, Callable[[Settings], Engine]] = {
    "torch": _torch,
    "vllm": _vllm,
    "sglang": _sglang,
    "hook": _hook,
}


def open_engine(settings: Settings) -> Engine:
    """Return the adapter for the engine of *settings*; it connects when it is first asked."""
    return _ADAPTERS[settings.engine](settings)


def key_of(settings: Settings) -> str:
    """Return the engine's API key; empty: it asks for none.

    Raises:
        VctlError: Its file cannot be read.
    """
    return _read_key(settings.engine_key_file)


def _read_key(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise VctlError(f"the engine's key cannot be read: {cause}") from cause
