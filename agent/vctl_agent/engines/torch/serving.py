"""The life of an engine process: load, listen, say where, and on a signal finish and leave.

The rule to keep: the port is told (on stdout, and in the port file by a rename) only when requests
are answered, so whoever waits for it need not ask again.
"""

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web

from vctl_agent.engines.torch.checkpoint import load_base
from vctl_agent.engines.torch.device import chosen_device, use_threads
from vctl_agent.engines.torch.faults import Faults
from vctl_agent.engines.torch.generate import Engine
from vctl_agent.engines.torch.registry import Limits, Registry
from vctl_agent.engines.torch.scheduler import Scheduler
from vctl_agent.engines.torch.server import application
from vctl_agent.engines.torch.service import Service, version
from vctl_plans.errors import EngineError

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that `vctl-engine serve` can be told; its flags say what each means."""

    base: str
    served_name: str
    host: str
    port: int
    port_file: Path | None
    device: str
    threads: int
    max_loras: int
    max_lora_rank: int
    cache_blocks: int
    max_running: int
    token_delay_s: float
    shutdown_timeout_s: float
    fault_file: Path | None


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ArtifactError: The base model cannot be loaded.
        EngineError: The address is taken, or there is no such device.
    """
    began = time.monotonic()
    use_threads(settings.threads)
    base = load_base(settings.base, device=chosen_device(settings.device))
    engine = Engine(base, cache_blocks=settings.cache_blocks)
    scheduler = Scheduler(max_running=settings.max_running, token_delay_s=settings.token_delay_s)
    limits = Limits(settings.max_loras, settings.max_lora_rank)
    registry = Registry(base, name=settings.served_name, limits=limits)
    service = Service(
        engine, registry=registry, scheduler=scheduler, faults=Faults(settings.fault_file)
    )
    log.info(
        "base loaded",
        base=settings.base,
        digest=base.digest[:12],
        device=str(base.model.device),
        seconds=round(time.monotonic() - began, 3),
    )
    asyncio.run(_run(service, settings))


async def _run(service: Service, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        application(service),
        access_log=None,
        handler_cancellation=True,  # a client that goes away ends its generation
        # aiohttp waits twice this long: for handlers to end, then again once it has cut off what
        # they still read. Here they read nothing by then, so both halves are time to finish.
        shutdown_timeout=settings.shutdown_timeout_s / 2,
    )
    await runner.setup()
    service.scheduler.start()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        try:
            await site.start()
        except OSError as cause:
            where = f"{settings.host}:{settings.port}"
            raise EngineError(f"cannot listen on {where}: {cause.strerror}") from cause
        _tell(settings, int(runner.addresses[0][1]), service)
        await stop.wait()
        log.info("stopping", inflight=sum(service.registry.inflight.values()))
    finally:
        await runner.cleanup()
        service.scheduler.close()


def _tell(settings: Settings, port: int, service: Service) -> None:
    log.info(
        "listening",
        host=settings.host,
        port=port,
        incarnation=service.incarnation,
        version=version(),
    )
    sys.stdout.write(f"http://{settings.host}:{port}\n")
    sys.stdout.flush()
    if settings.port_file is not None:
        partial = settings.port_file.with_name(f".{settings.port_file.name}.{os.getpid()}")
        partial.write_text(f"{port}\n")
        partial.replace(settings.port_file)
