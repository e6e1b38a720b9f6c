"""Logs: JSON lines on stderr, readable ones on a terminal; nothing of a request's contents."""

import logging
import sys

import msgspec
import structlog


def configure(*, fleet: str, node: str) -> None:
    """Set structlog up for the process; *fleet* and *node* stand in every line."""
    structlog.contextvars.clear_contextvars()
    is_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if is_terminal
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[
            _named(fleet, node),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _named(fleet: str, node: str) -> structlog.typing.Processor:
    def add(
        _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["fleet"] = fleet
        event["node"] = node
        return event

    return add


def _json(event: object, **_options: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
