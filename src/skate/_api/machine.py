"""What libraries may ask about this machine."""

from __future__ import annotations

from skate._base.memory import free as free_memory

__all__ = ["free_memory"]
