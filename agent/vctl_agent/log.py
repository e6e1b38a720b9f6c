"""The programs' log: structlog to stderr, JSON unless a person watches; no request's contents."""

import logging
import sys
from typing import TextIO

import msgspec
import structlog
from aiohttp.http import HttpProcessingError

_log = structlog.get_logger()


def configure(*, level: str = "info", file: TextIO | None = None, **bound: str) -> None:
    """Set the process's log up, once.

    Args:
        level: The lowest level that is written.
        file: Where to; stderr if not given.
        bound: What stands in every line, for example ``node="n1"``.
    """
    out = file or sys.stderr
    structlog.contextvars.clear_contextvars()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if out.isatty()
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[
            _with(bound),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING, force=True)


class _Libraries(logging.Handler):
    """Passes on what aiohttp and asyncio log; it is seldom, and then it is a bug of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            # A client's malformed request, answered with 400; its text would show contents.
            _log.info("malformed request", error=type(error).__name__)
            return
        _log.error(
            "library error",
            library=record.name,
            error=record.getMessage(),
            exc_info=record.exc_info if error else None,
        )


def _with(bound: dict[str, str]) -> structlog.typing.Processor:
    def add(
        _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event.update(bound)
        return event

    return add


def _json(event: object, **_options: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
