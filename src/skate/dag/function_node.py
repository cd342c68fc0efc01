"""Nodes for calls of remote functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate.dag.dag_node import DAGNode

# Options that a function keeps from its declaration and `.options(...)` rejects.
_DECLARED_ONLY = frozenset({"max_calls"})


class FunctionNode(DAGNode):
    """The call that `function.bind(...)` describes.

    Args:
        func_body: The remote function.
        func_args: Positional arguments.
        func_kwargs: Keyword arguments.
        func_options: Options of the function, or from `.options(...)`.
        other_args_to_resolve: Further dependencies of the call.
    """

    def __init__(
        self,
        func_body: Any,
        func_args: tuple[Any, ...],
        func_kwargs: dict[str, Any],
        func_options: dict[str, Any],
        other_args_to_resolve: dict[str, Any] | None = None,
    ) -> None:
        self._function = func_body
        super().__init__(func_args, func_kwargs, func_options, other_args_to_resolve)

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Submit the task."""
        args, kwargs = self._resolve_arguments(value_of)
        options = {key: value for key, value in self._bound_options.items() if key not in _DECLARED_ONLY}
        function = self._function.options(**options) if options else self._function
        return function.remote(*args, **kwargs)

    def label(self) -> str:
        """Return the name of the function, or the name from its options."""
        name = self._bound_options.get("name") or getattr(self._function, "__name__", None)
        return str(name or self._function)
