"""The program's log: structlog to stderr, JSON unless a person watches."""

import logging
import sys

import structlog


def configure(*, level: str = "info", **bound: str) -> None:
    """Set the program's log up, once; *bound* is on every line.

    Args:
        level: The lowest level that is written.
        bound: For example ``node="n1"``.
    """
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    structlog.contextvars.bind_contextvars(**bound)
