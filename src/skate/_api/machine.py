"""Facts about this machine, for the libraries."""

from __future__ import annotations

from skate._base.memory import free as free_memory

__all__ = ["free_memory"]
