"""Several results of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.dag.dag_node import DAGNode


class MultiOutputNode(DAGNode):
    """Ends a graph in several nodes at once; `execute` gives a list.

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
        """Say that a compiled graph may end here."""
        return True

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> list[Any]:
        """Return what each of the nodes gave."""
        args, _ = self._resolved(value_of)
        return args
