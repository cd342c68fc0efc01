"""Nodes for the input of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from skate.dag.dag_node import DAGNode


class InputNodeError(ValueError, AssertionError):
    """Report an `InputNode` in an invalid place.

    It is also an AssertionError, because that is what Ray raises.
    """


class DAGInputData:
    """The input of a graph that is executed with more than one value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = list(args)
        self._kwargs = kwargs

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, int):
            return self._args[key]
        if isinstance(key, str):
            return self._kwargs[key]
        raise _wrong_key(key)


class InputNode(DAGNode):
    """The input of a graph, within a `with` statement.

    `execute(x)` sets its value to `x`; `node[0]`, `node["key"]` and `node.name` refer to parts of it, or to the
    arguments if there are several.

    Examples:
        >>> import skate
        >>> from skate.dag import InputNode
        >>> @skate.remote
        ... def double(x):
        ...     return 2 * x
        >>> with InputNode() as value:
        ...     graph = double.bind(value)
        >>> skate.get(graph.execute(4))
        8
    """

    def __init__(
        self,
        *args: Any,
        input_type: Any = None,
        _other_args_to_resolve: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if args or kwargs:
            raise ValueError("InputNode should not take any args or kwargs.")
        super().__init__((), {}, {}, _other_args_to_resolve)
        self.input_type = input_type
        self._entered = False
        self._attributes: dict[int | str, InputAttributeNode] = {}

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def check_context(self) -> None:
        """Raise an error unless the node was created by a `with` statement."""
        if not self._entered:
            raise InputNodeError(
                "The graph has an InputNode that no `with` statement made. Bind the graph inside of "
                "`with InputNode() as value:`."
            )

    def set_context(self, key: str, val: Any) -> None:
        """Store a value with the node, for `get_other_args_to_resolve`."""
        self._bound_other_args[key] = val

    def get_result_type(self) -> Any:
        """Return the declared `input_type`."""
        return self.input_type

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Return the input."""
        return inputs

    def __getitem__(self, key: int | str) -> InputAttributeNode:
        if not isinstance(key, (int, str)):
            raise _wrong_key(key)
        return self._part(key, "__getitem__")

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("_"):  # protocols such as copying look up names that no input has
            raise AttributeError(f"'InputNode' object has no attribute {name!r}")
        return self._part(name, "__getattr__")

    def _part(self, key: int | str, accessor: str) -> InputAttributeNode:
        # One node per part, so that the plan can tell which parts a graph uses.
        part = InputAttributeNode(self, key, accessor)
        self._attributes.setdefault(key, part)
        return part


class InputAttributeNode(DAGNode):
    """A part of the input: an argument, an item or an attribute.

    Args:
        dag_input_node: The node of the input.
        key: The index or name.
        accessor_method: "__getitem__" or "__getattr__".
        input_type: Declared type of the part, if any.
    """

    def __init__(
        self, dag_input_node: InputNode, key: int | str, accessor_method: str, input_type: Any = None
    ) -> None:
        super().__init__((), {}, {}, {"dag_input_node": dag_input_node, "key": key})
        self.dag_input_node = dag_input_node
        self._key = key
        self._accessor = accessor_method
        self._input_type = input_type
        dag_input_node._downstream.append(self)

    @property
    def key(self) -> int | str:
        """The index or name of the part."""
        return self._key

    def get_result_type(self) -> Any:
        """Return the declared type of the part, if any."""
        return self._input_type

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Return the part of the input."""
        whole = value_of(self.dag_input_node)
        if isinstance(whole, DAGInputData) or self._accessor == "__getitem__":
            return whole[self._key]
        return getattr(whole, str(self._key))

    def label(self) -> str:
        """Return the expression for the part."""
        return f"InputNode[{self._key!r}]"


def _wrong_key(key: object) -> InputNodeError:
    return InputNodeError(
        f"InputNode()[{key!r}] is not possible: the index of a positional argument or a string selects a part of the "
        "input."
    )
