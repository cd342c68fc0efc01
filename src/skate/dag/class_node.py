"""Nodes for actors that a graph creates, and for calls of actor methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from skate.dag.constants import (
    BIND_INDEX_KEY,
    IS_CLASS_METHOD_OUTPUT_KEY,
    PARENT_CLASS_NODE_KEY,
    PREV_CLASS_METHOD_CALL_KEY,
)
from skate.dag.dag_node import DAGNode, all_upstream
from skate.dag.input_node import InputAttributeNode, InputNode

# Options that a class keeps from its declaration and `.options(...)` rejects.
_DECLARED_ONLY = frozenset({"concurrency_groups"})


class ClassNode(DAGNode):
    """The actor that `ActorClass.bind(...)` describes; each execution creates its own instance.

    Args:
        cls: The actor class.
        cls_args: Positional arguments of its constructor.
        cls_kwargs: Keyword arguments of its constructor.
        cls_options: Options of the class, or from `.options(...)`.
        other_args_to_resolve: Further dependencies of the actor.

    Raises:
        ValueError: An argument depends on the graph's input.
    """

    def __init__(
        self,
        cls: Any,
        cls_args: tuple[Any, ...],
        cls_kwargs: dict[str, Any],
        cls_options: dict[str, Any],
        other_args_to_resolve: dict[str, Any] | None = None,
    ) -> None:
        self._actor_class = cls
        self._last_call: ClassMethodNode | None = None
        super().__init__(cls_args, cls_kwargs, cls_options, other_args_to_resolve)
        if any(isinstance(node, (InputNode, InputAttributeNode)) for node in all_upstream(self)):
            raise ValueError(
                f"The constructor of {self.label()} takes the InputNode of the graph, but the actor is created before "
                "the graph has an input. Pass the input to a method instead."
            )

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Create the actor."""
        args, kwargs = self._resolve_arguments(value_of)
        options = {key: value for key, value in self._bound_options.items() if key not in _DECLARED_ONLY}
        actor_class = self._actor_class.options(**options) if options else self._actor_class
        return actor_class.remote(*args, **kwargs)

    def label(self) -> str:
        """Return the name of the class."""
        return str(_plain_class(self._actor_class).__name__)

    def __getattr__(self, name: str) -> _UnboundClassMethodNode:
        if name == "bind" or name.startswith("__"):
            return super().__getattr__(name)  # type: ignore[no-any-return]
        plain = _plain_class(self.__dict__["_actor_class"])
        if not hasattr(plain, name):
            raise AttributeError(f"type object '{plain.__name__}' has no attribute '{name}'")
        return _UnboundClassMethodNode(self, name, {})


class _UnboundClassMethodNode:
    """A method of an actor that is yet to be created; `bind` describes a call."""

    def __init__(self, actor: ClassNode, method_name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._method_name = method_name
        self._options = options

    def bind(self, *args: Any, **kwargs: Any) -> ClassMethodNode:
        """Describe a call of the method."""
        return ClassMethodNode(self._actor, self._method_name, args, kwargs, self._options)

    def options(self, **options: Any) -> _UnboundClassMethodNode:
        """Return the method with options for the call."""
        return _UnboundClassMethodNode(self._actor, self._method_name, options)

    def __getattr__(self, name: str) -> Any:
        if name == "remote":
            raise AttributeError(
                ".remote() cannot be used on ClassMethodNodes: the actor does not exist yet. Add the call to the "
                f"graph with .{self._method_name}.bind(...)."
            )
        raise AttributeError(f"{self._method_name!r} has no attribute {name!r}; it has bind and options")


class ClassMethodNode(DAGNode):
    """The call that `actor.method.bind(...)` describes.

    Calls of an actor that the graph creates run in the order in which they were bound, including calls whose
    results are unused.

    Args:
        actor: Handle of the actor, or the node that creates it.
        method_name: Name of the method.
        method_args: Positional arguments.
        method_kwargs: Keyword arguments.
        method_options: Options of the call.
        num_returns: Number of references that the call returns.

    Attributes:
        class_method_call: For an output of a call, that call; else None.
        output_idx: For an output of a call, its index; else None.
    """

    class_method_call: ClassMethodNode | None = None
    output_idx: int | None = None

    def __init__(
        self,
        actor: Any,
        method_name: str,
        method_args: tuple[Any, ...],
        method_kwargs: dict[str, Any],
        method_options: dict[str, Any],
        num_returns: int = 1,
    ) -> None:
        self._actor = actor
        self._method_name = method_name
        self._num_returns = num_returns
        previous = actor._last_call if isinstance(actor, ClassNode) else None
        others = {PARENT_CLASS_NODE_KEY: actor, PREV_CLASS_METHOD_CALL_KEY: previous}
        super().__init__(method_args, method_kwargs, method_options, others)
        self._bound_other_args[BIND_INDEX_KEY] = self._order
        if isinstance(actor, ClassNode):
            actor._last_call = self

    @property
    def actor(self) -> Any:
        """The handle of the actor, or the node that creates it."""
        return self._actor

    @property
    def num_returns(self) -> int:
        """The number of references that the call returns."""
        return self._num_returns

    @property
    def is_class_method_call(self) -> bool:
        """Whether this is a call rather than an output of a call."""
        return True

    @property
    def is_class_method_output(self) -> bool:
        """Whether this is an output of a call."""
        return not self.is_class_method_call

    def is_compilable(self) -> bool:
        """Return whether the actor already exists."""
        return not isinstance(self._actor, DAGNode)

    def get_method_name(self) -> str:
        """Return the name of the method."""
        return self._method_name

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Call the method."""
        args, kwargs = self._resolve_arguments(value_of)
        handle = value_of(self._actor) if isinstance(self._actor, DAGNode) else self._actor
        method = getattr(handle, self._method_name)
        if self._bound_options:
            method = method.options(**self._bound_options)
        return method.remote(*args, **kwargs)

    def label(self) -> str:
        """Return the actor and the method."""
        actor = self._actor.label() if isinstance(self._actor, DAGNode) else str(self._actor)
        return f"{actor}.{self._method_name}"


class ClassMethodOutputNode(ClassMethodNode):
    """One of several values that a call returns."""

    class_method_call: ClassMethodNode
    output_idx: int

    def __init__(self, class_method_call: ClassMethodNode, output_idx: int) -> None:
        self.class_method_call = class_method_call
        self.output_idx = output_idx
        self._actor = class_method_call.actor
        self._method_name = f"return_idx_{output_idx}"
        self._num_returns = 1
        DAGNode.__init__(self, (class_method_call, output_idx), {}, {}, {IS_CLASS_METHOD_OUTPUT_KEY: True})

    @property
    def is_class_method_call(self) -> bool:
        """Return False."""
        return False

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Return the reference of this output."""
        return value_of(self.class_method_call)[self.output_idx]

    def label(self) -> str:
        """Return the call and the index."""
        return f"{self.class_method_call.label()}[{self.output_idx}]"


def bind_actor_method(
    handle: Any,
    method_name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
    *,
    num_returns: int | str | None = None,
    signature: inspect.Signature | None = None,
) -> ClassMethodNode | tuple[ClassMethodOutputNode, ...]:
    """Describe a call of an existing actor; implements `handle.method.bind(...)`.

    Args:
        handle: Handle of the actor.
        method_name: Name of the method.
        args: Positional arguments.
        kwargs: Keyword arguments.
        options: Options of the call.
        num_returns: Number of references that the call returns.
        signature: Signature of the method without `self`, to check the arguments.

    Returns:
        The call; its outputs if it returns several.

    Raises:
        TypeError: The arguments do not fit the signature.
    """
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{error}. The method is {method_name}{signature}, and bind() got {args} and {kwargs}."
            ) from None
    count = num_returns if isinstance(num_returns, int) else 1
    node = ClassMethodNode(handle, method_name, args, kwargs, options, count)
    if count > 1:
        return tuple(ClassMethodOutputNode(node, index) for index in range(count))
    return node


def _plain_class(actor_class: Any) -> Any:
    """Return the undecorated class."""
    return getattr(actor_class, "_kind", actor_class)
