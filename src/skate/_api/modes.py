"""The two kinds of process in a session, by the numbers that Ray gives them."""

from __future__ import annotations

from typing import Final

SCRIPT_MODE: Final = 0  # a driver
WORKER_MODE: Final = 1

__all__ = ["SCRIPT_MODE", "WORKER_MODE"]
