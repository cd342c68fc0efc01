"""Serializers for third-party types that cannot be pickled."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["apply", "register_starlette_serializer"]


def register_starlette_serializer(serialization_context: Any) -> None:
    """Register a serializer for ``starlette.datastructures.State``; without Starlette, do nothing.

    Args:
        serialization_context: For example a `StandaloneSerializationContext`.
    """
    try:
        state = importlib.import_module("starlette.datastructures").State
    except ImportError:
        return
    serialization_context._register_cloudpickle_serializer(
        state, custom_serializer=_items, custom_deserializer=state
    )


def _items(state: Any) -> Any:
    return state._state


def apply(serialization_context: Any) -> None:
    """Register the serializers of this module. Pydantic models and Arrow tables need none in Skate.

    Args:
        serialization_context: For example a `StandaloneSerializationContext`.
    """
    register_starlette_serializer(serialization_context)
