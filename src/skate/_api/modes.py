"""The two kinds of process in a session, with Ray's numbers."""

from __future__ import annotations

from typing import Final

SCRIPT_MODE: Final = 0  # a driver
WORKER_MODE: Final = 1

__all__ = ["SCRIPT_MODE", "WORKER_MODE"]
