"""The base class of all nodes of a task graph."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from skate.dag._template import Template
from skate.dag._transport import TensorTransport

if TYPE_CHECKING:
    from skate.dag.compiled_dag_node import CompiledDAG

T = TypeVar("T")

_next_order = itertools.count().__next__


class DAGNode:
    """A call that was described with `bind` but not made.

    Nodes are created by `function.bind`, `ActorClass.bind` and `actor.method.bind`; `execute` makes the calls.

    Args:
        args: Positional arguments; nodes in them, at any depth, are replaced by their results.
        kwargs: Keyword arguments.
        options: Options of the call.
        other_args_to_resolve: Further dependencies of the call.
    """

    def __init__(
        self,
        args: Iterable[Any],
        kwargs: dict[str, Any],
        options: dict[str, Any],
        other_args_to_resolve: dict[str, Any] | None = None,
    ) -> None:
        self._bound_args = tuple(args)
        self._bound_kwargs = dict(kwargs)
        self._bound_options = dict(options)
        self._bound_other_args = dict(other_args_to_resolve or {})
        self._templates = [Template(value, DAGNode) for value in self._bound_args]
        self._keyword_templates = {key: Template(value, DAGNode) for key, value in self._bound_kwargs.items()}
        self._stable_uuid = uuid.uuid4().hex
        # The arguments of a node are created before it, so this order is a valid order of calls.
        self._order = _next_order()
        # Nodes that take the output of this one, for compiled graphs only; other graphs do not limit reuse.
        self._downstream: list[DAGNode] = []
        self._transport = TensorTransport()
        self._compiled_by: DAGNode | None = None
        self._cached_references: dict[str, Any] = {}
        if self.is_compilable():
            for node in self.upstream():
                node._downstream.append(self)

    # ------------------------------------------------------------ arguments

    def get_args(self) -> tuple[Any, ...]:
        """Return the positional arguments."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments."""
        return dict(self._bound_kwargs)

    def get_options(self) -> dict[str, Any]:
        """Return the options of the call."""
        return dict(self._bound_options)

    def get_other_args_to_resolve(self) -> dict[str, Any]:
        """Return the further dependencies of the call."""
        return dict(self._bound_other_args)

    def get_stable_uuid(self) -> str:
        """Return an id that is stable for the lifetime of the node."""
        return self._stable_uuid

    @property
    def type_hint(self) -> TensorTransport:
        """The transport of the output of this node."""
        return self._transport

    def with_tensor_transport(
        self,
        transport: Any = "auto",
        device: str = "default",
        _static_shape: bool = False,
        _direct_return: bool = False,
    ) -> Self:
        """Set the transport of tensors in the output, and the device on which readers receive them.

        Args:
            transport: Accepted as in Ray; on one machine tensors use shared memory.
            device: "default", "cpu", "gpu" or "cuda".

        Returns:
            The node itself.
        """
        self._transport = TensorTransport(transport, device, _static_shape)
        return self

    # ------------------------------------------------------------ execution

    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Make the calls of the graph that ends in this node.

        A node that several others use is called once. Actors of `ActorClass.bind` are created for each execution.

        Args:
            *args: The values of the graph's `InputNode`.
            _ray_cache_refs: Keep the references for `get_object_refs_from_last_execute`.
            **kwargs: Named values of the graph's `InputNode`.

        Returns:
            A reference to the result, a list of them for a `MultiOutputNode`, or an actor handle.
        """
        results = _execute(self, args, kwargs)
        if _ray_cache_refs:
            self._cached_references = {node._stable_uuid: result for node, result in results.items()}
        return results[self]

    def experimental_compile(
        self,
        _submit_timeout: float | None = None,
        _buffer_size_bytes: int | None = None,
        enable_asyncio: bool = False,
        _max_inflight_executions: int | None = None,
        _max_buffered_results: int | None = None,
        _overlap_gpu_communication: bool | None = None,
        _default_communicator: Any = "create",
    ) -> CompiledDAG:
        """Compile a graph of calls to existing actors, to run it many times.

        Args:
            _submit_timeout: Seconds that `execute` waits for a free slot.
            _buffer_size_bytes: Accepted as in Ray, without effect.
            enable_asyncio: Whether the graph is run with `execute_async` instead of `execute`.
            _max_inflight_executions: Maximum number of executions in flight.
            _max_buffered_results: Maximum number of executions with buffered results.
            _overlap_gpu_communication: Accepted as in Ray, without effect.
            _default_communicator: Accepted as in Ray, without effect.

        Raises:
            ValueError: The graph cannot be compiled; the message gives the reason.
        """
        from skate.dag.compiled_dag_node import CompiledDAG

        return CompiledDAG(
            self,
            enable_asyncio=enable_asyncio,
            submit_timeout=_submit_timeout,
            max_inflight_executions=_max_inflight_executions,
            max_buffered_results=_max_buffered_results,
        )

    def get_object_refs_from_last_execute(self) -> dict[str, Any]:
        """Return the references of the last `execute(_ray_cache_refs=True)`, by node id."""
        return dict(self._cached_references)

    def clear_cache(self) -> None:
        """Drop the references of the last execution."""
        self._cached_references = {}

    # ------------------------------------------------------------ traversal

    def upstream(self) -> list[DAGNode]:
        """Return the distinct nodes in the arguments."""
        found: dict[DAGNode, None] = {}
        for template in (*self._templates, *self._keyword_templates.values()):
            found.update(dict.fromkeys(template.nodes))
        return list(found)

    def dependencies(self) -> Iterator[DAGNode]:
        """Yield all nodes that must be called before this one."""
        yield from self.upstream()
        for value in self._bound_other_args.values():
            if isinstance(value, DAGNode):
                yield value

    def apply_recursive(self, fn: Callable[[DAGNode], T]) -> T:
        """Call a function once with each node of the graph that ends here, starting from the inputs.

        Args:
            fn: Function that receives a copy of the node, with the results for other nodes in place of those nodes.

        Returns:
            The result for this node.
        """
        results: dict[DAGNode, T] = {}
        for node in all_upstream(self):
            results[node] = fn(node._with_children(results))
        return results[self]

    def apply_functional(
        self,
        source_input_list: Any,
        predicate_fn: Callable[[DAGNode], bool],
        apply_fn: Callable[[DAGNode], Any],
    ) -> Any:
        """Replace the nodes in a value with other values.

        Args:
            source_input_list: Any value. Neither it nor its nodes are modified.
            predicate_fn: Return whether to replace a node.
            apply_fn: Return the replacement of a node.
        """
        template = Template(source_input_list, DAGNode)
        return template.fill(lambda node: apply_fn(node) if predicate_fn(node) else node)

    def traverse_and_apply(self, fn: Callable[[DAGNode], Any]) -> None:
        """Call a function once with each node that is connected with this one, in either direction.

        Args:
            fn: The function.
        """
        found = {self: None}
        waiting = [self]
        while waiting:
            node = waiting.pop(0)
            fn(node)
            new = [other for other in (*node.dependencies(), *node._downstream) if other not in found]
            found.update(dict.fromkeys(new))
            waiting += dict.fromkeys(new)

    def _with_children(self, replacements: dict[DAGNode, Any]) -> Self:
        """Return a copy with the nodes that it depends on replaced."""
        made = copy.copy(self)
        args, kwargs = self._resolve_arguments(replacements.__getitem__)
        made._bound_args, made._bound_kwargs = tuple(args), kwargs
        made._templates = [Template(value, DAGNode) for value in args]
        made._keyword_templates = {key: Template(value, DAGNode) for key, value in kwargs.items()}
        made._bound_other_args = {
            key: replacements.get(value, value) if isinstance(value, DAGNode) else value
            for key, value in self._bound_other_args.items()
        }
        for name, value in vars(self).items():
            if isinstance(value, DAGNode) and value in replacements:
                setattr(made, name, replacements[value])
        return made

    def is_compilable(self) -> bool:
        """Return whether the node can be a step of a compiled graph."""
        return False

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Make the call.

        Args:
            value_of: Return the result of a node that was called before.
            inputs: The input of the execution.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be executed")

    def _resolve_arguments(self, value_of: Callable[[DAGNode], Any]) -> tuple[list[Any], dict[str, Any]]:
        args = [template.fill(value_of) for template in self._templates]
        return args, {key: template.fill(value_of) for key, template in self._keyword_templates.items()}

    def label(self) -> str:
        """Return a short description of the call, for messages and drawings."""
        return type(self).__name__

    def __str__(self) -> str:
        arguments = [_shorten(value) for value in self._bound_args]
        arguments += [f"{key}={_shorten(value)}" for key, value in self._bound_kwargs.items()]
        return f"{type(self).__name__}({self.label()}({', '.join(arguments)}))"

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        if name == "bind":
            raise AttributeError(f".bind() cannot be used again on {type(self)}: the call is bound already.")
        if name == "remote":
            raise AttributeError(
                f".remote() cannot be used on {type(self)}: run the graph that ends in this node with .execute()."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _shorten(value: Any) -> str:
    if isinstance(value, DAGNode):
        return value.label()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def all_upstream(node: DAGNode) -> list[DAGNode]:
    """Return `node` and all nodes that must be called before it, in a valid order of calls."""
    found = {node}
    waiting = [node]
    while waiting:
        for other in waiting.pop().dependencies():
            if other not in found:
                found.add(other)
                waiting.append(other)
    return sorted(found, key=lambda each: each._order)


def _execute(root: DAGNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[DAGNode, Any]:
    """Make the calls of the graph that ends in `root`.

    Returns:
        The result of each node: a reference, a list of them, or an actor handle.
    """
    from skate.dag.input_node import DAGInputData

    nodes = all_upstream(root)
    _check_inputs(nodes)
    inputs = args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
    results: dict[DAGNode, Any] = {}
    for node in nodes:
        results[node] = node.call(results.__getitem__, inputs)
    return results


def _check_inputs(nodes: list[DAGNode]) -> None:
    from skate.dag.input_node import InputNode, InputNodeError

    inputs = [node for node in nodes if isinstance(node, InputNode)]
    for node in inputs:
        node.check_context()
    if len(inputs) > 1:
        raise InputNodeError(
            f"Each DAG should only have one unique InputNode, found {len(inputs)}. "
            "Bind the whole graph inside of one `with InputNode() as ...:`."
        )
