"""Nodes for graphs with several results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.dag.dag_node import DAGNode


class MultiOutputNode(DAGNode):
    """End a graph in several nodes; `execute` returns a list.

    Args:
        args: The nodes.
    """

    def __init__(
        self, args: list[Any] | tuple[Any, ...], other_args_to_resolve: dict[str, Any] | None = None
    ) -> None:
        if not isinstance(args, (list, tuple)):
            raise ValueError(
                f"Invalid input type for `args`, {type(args)}. MultiOutputNode takes a list of nodes."
            )
        super().__init__(args, {}, {}, other_args_to_resolve)

    def is_compilable(self) -> bool:
        """Return True: a compiled graph may end here."""
        return True

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> list[Any]:
        """Return the results of the nodes."""
        args, _ = self._resolve_arguments(value_of)
        return args
