"""Results as JSON lines."""

from __future__ import annotations

from skate.tune.logger.logger import LoggerCallback

__all__ = ["JsonLoggerCallback"]


class JsonLoggerCallback(LoggerCallback):
    """Accepted for programs written for Ray: every trial's folder has `params.json` and `result.json` anyway."""
