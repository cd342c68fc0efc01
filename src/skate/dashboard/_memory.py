"""The memory view: who holds which bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams

from skate.dashboard._node import Node
from skate.dashboard._topics import Problem, integer
from skate.util.state._memory import memory_of

__all__ = ["Memory"]

DEFAULT_LIMIT: Final = 200
MOST_OBJECTS: Final = 1000


class Memory:
    """The topic /state/memory.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def handle(self, _: Mapping[str, str], query: QueryParams) -> dict[str, Any]:
        """Return the memory of each process, and the largest objects with their holders."""
        limit = integer(query, "limit", DEFAULT_LIMIT, at_least=1, at_most=MOST_OBJECTS)
        found = await self._node.share(
            ("memory", limit), lambda: self._node.ask(lambda node: memory_of(node.engine, limit))
        )
        if found is None:
            raise Problem(404, "A Ray cluster does not say who holds its objects: see Ray's own dashboard.")
        return found
