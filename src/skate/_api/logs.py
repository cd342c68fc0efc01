"""Logging of Skate itself, through the standard `logging` module."""

from __future__ import annotations

import logging
from typing import Any

_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"


def configure(level: int | str, form: str | None, config: Any) -> None:
    """Set the level and format of the `skate` logger; other loggers are the program's own."""
    logger = logging.getLogger("skate")
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False
    for handler in logger.handlers:
        handler.setFormatter(logging.Formatter(form or _FORMAT))
    if config is not None:
        config.apply()
