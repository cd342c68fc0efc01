"""Locations of objects."""

from __future__ import annotations

from typing import Any

import skate
import skate._engine as engines
from skate.util.state import get_objects, list_objects

__all__ = ["get_local_object_locations", "get_object_locations"]

_MAX_ROWS = 10_000  # the limit of the state API


def get_object_locations(
    obj_refs: list[skate.ObjectRef[Any]], timeout_ms: int = -1
) -> dict[skate.ObjectRef[Any], dict[str, Any]]:
    """Return the size and node of objects.

    Args:
        obj_refs: References to the objects.
        timeout_ms: Milliseconds to wait for the reply; a negative number means the default of the state API.

    Returns:
        A dictionary per reference: `node_ids` holds the id of the node once the object exists, and `object_size`
        its size in bytes, None until then. Unknown objects are omitted.

    Raises:
        RuntimeError: This process has no session.

    Example:
        >>> import skate
        >>> ref = skate.put(b"x" * 1_000_000)
        >>> get_object_locations([ref])[ref]["object_size"] > 1_000_000
        True
    """
    if not skate.is_initialized():
        raise RuntimeError("This process has no session; call skate.init() first.")
    node = skate.get_runtime_context().get_node_id()
    limits: dict[str, Any] = {} if timeout_ms < 0 else {"timeout": timeout_ms / 1000}
    engines.current().publish(obj_refs)
    rows = list_objects(limit=_MAX_ROWS, **limits)
    if len(rows) == _MAX_ROWS:  # there may be more
        rows = [row for ref in obj_refs for row in get_objects(ref.hex(), **limits)]
    sizes = {row.object_id: row.object_size for row in rows}
    found: dict[skate.ObjectRef[Any], dict[str, Any]] = {}
    for ref in obj_refs:
        size = sizes.get(ref.hex())
        if size is not None:
            exists = size >= 0
            found[ref] = {"node_ids": [node] if exists else [], "object_size": size if exists else None}
    return found


def get_local_object_locations(
    obj_refs: list[skate.ObjectRef[Any]],
) -> dict[skate.ObjectRef[Any], dict[str, Any]]:
    """Return the same as `get_object_locations`: there is one node.

    Args:
        obj_refs: References to the objects.
    """
    return get_object_locations(obj_refs)
