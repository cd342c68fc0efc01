"""Replaces `ray._private.utils`: the size and the usage of memory."""

from __future__ import annotations

from skate._base import memory

__all__ = ["get_system_memory", "get_used_memory"]


def get_system_memory() -> int:
    """Return the bytes of memory that this process may use."""
    usage = memory.usage()
    return memory.total() if usage is None else usage.total


def get_used_memory() -> int:
    """Return the bytes of that memory that are in use."""
    usage = memory.usage()
    return memory.total() - memory.free() if usage is None else usage.used
