"""Logging of Skate itself, through the standard `logging` module."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import skate._engine as engines

if TYPE_CHECKING:
    from skate._engine.abc import EngineContext

logger = logging.getLogger("skate")

_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"


def configure(level: int | str, form: str | None, config: Any) -> None:
    """Set the level and format of the `skate` logger; other loggers belong to the program."""
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False
    for handler in logger.handlers:
        handler.setFormatter(logging.Formatter(form or _FORMAT))
    if config is not None:
        from skate._engine.common.log_context import log_as

        log_as(config.to_dict(), _context)


def _context() -> EngineContext | None:
    running = engines.running()
    return None if running is None else running.context()
