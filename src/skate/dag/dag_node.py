"""What all nodes of a task graph have in common."""

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
    """A call that has been described with `bind` but not made.

    Nodes are made by `function.bind`, `ActorClass.bind` and `actor.method.bind`; `execute` makes the calls.

    Args:
        args: Positional arguments; nodes in them, at any depth, are replaced by what they give.
        kwargs: Keyword arguments.
        options: Options of the call.
        other_args_to_resolve: What the call depends on besides its arguments.
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
        # A node's arguments exist before it, so this order is one in which the calls can be made.
        self._order = _next_order()
        # Who takes this node's output, in compiled graphs; in others a node may be used without end.
        self._downstream: list[DAGNode] = []
        self._transport = TensorTransport()
        self._compiled_by: DAGNode | None = None
        self._cached_references: dict[str, Any] = {}
        if self.is_compilable():
            for node in self.upstream():
                node._downstream.append(self)

    # What the node was made of

    def get_args(self) -> tuple[Any, ...]:
        """Return the positional arguments it was bound to."""
        return self._bound_args

    def get_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments it was bound to."""
        return dict(self._bound_kwargs)

    def get_options(self) -> dict[str, Any]:
        """Return the options of the call."""
        return dict(self._bound_options)

    def get_other_args_to_resolve(self) -> dict[str, Any]:
        """Return what the call depends on besides its arguments."""
        return dict(self._bound_other_args)

    def get_stable_uuid(self) -> str:
        """Return an id that stays the same for the life of the node."""
        return self._stable_uuid

    @property
    def type_hint(self) -> TensorTransport:
        """How the output of this node travels."""
        return self._transport

    def with_tensor_transport(
        self,
        transport: Any = "auto",
        device: str = "default",
        _static_shape: bool = False,
        _direct_return: bool = False,
    ) -> Self:
        """Say how tensors in the output travel, and on which device the reader shall find them.

        Args:
            transport: Accepted as in Ray; on one machine tensors travel through shared memory.
            device: "default", "cpu", "gpu" or "cuda".

        Returns:
            The node itself.
        """
        self._transport = TensorTransport(transport, device, _static_shape)
        return self

    # Running

    def execute(self, *args: Any, _ray_cache_refs: bool = False, **kwargs: Any) -> Any:
        """Make the calls of the graph that ends in this node.

        Nodes that several others use are called once. Actors of `ActorClass.bind` are created anew.

        Args:
            *args: What the graph's `InputNode` stands for.
            _ray_cache_refs: Keep the references for `get_object_refs_from_last_execute`.
            **kwargs: Named inputs.

        Returns:
            A reference to the result, a list of them for a `MultiOutputNode`, or an actor handle.
        """
        from skate.dag.execution import execute

        results = execute(self, args, kwargs)
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
        """Check a graph of calls to existing actors once, to run it many times.

        Args:
            _submit_timeout: Seconds that `execute` waits for room.
            _buffer_size_bytes: Accepted as in Ray, without effect.
            enable_asyncio: Whether the graph is run with `execute_async` instead of `execute`.
            _max_inflight_executions: How many executions may be in flight.
            _max_buffered_results: How many results may be kept for executions that were overtaken.
            _overlap_gpu_communication: Accepted as in Ray, without effect.
            _default_communicator: Accepted as in Ray, without effect.

        Raises:
            ValueError: The graph cannot be compiled; the message says why.
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
        """Return the references of the last `execute(_ray_cache_refs=True)`, by the nodes' ids."""
        return dict(self._cached_references)

    def clear_cache(self) -> None:
        """Forget the references of the last execution."""
        self._cached_references = {}

    # The graph

    def upstream(self) -> list[DAGNode]:
        """Return the nodes in the arguments, each once."""
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
        """Call a function with each node of the graph that ends here, once, from the inputs on.

        Args:
            fn: Gets a copy of the node, in whose arguments the results for other nodes stand in place of those nodes.

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
        """Return a value with other values in place of the nodes in it.

        Args:
            source_input_list: Any value. Neither it nor its nodes change.
            predicate_fn: Says which nodes to replace.
            apply_fn: Gives the value for a node.
        """
        template = Template(source_input_list, DAGNode)
        return template.fill(lambda node: apply_fn(node) if predicate_fn(node) else node)

    def traverse_and_apply(self, fn: Callable[[DAGNode], Any]) -> None:
        """Call a function with each node that this one is connected with, in either direction, once.

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
        """Return a copy with other values in place of the nodes that it depends on."""
        made = copy.copy(self)
        args, kwargs = self._resolved(replacements.__getitem__)
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
        """Say whether the node can be a step of a compiled graph."""
        return False

    def call(self, value_of: Callable[[DAGNode], Any], inputs: Any) -> Any:
        """Make the call.

        Args:
            value_of: Gives what a node that was called before gave.
            inputs: What the graph was executed with.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be executed")

    def _resolved(self, value_of: Callable[[DAGNode], Any]) -> tuple[list[Any], dict[str, Any]]:
        args = [template.fill(value_of) for template in self._templates]
        return args, {key: template.fill(value_of) for key, template in self._keyword_templates.items()}

    def label(self) -> str:
        """Return a short name of what is called, for messages and pictures."""
        return type(self).__name__

    def __str__(self) -> str:
        arguments = [_short(value) for value in self._bound_args]
        arguments += [f"{key}={_short(value)}" for key, value in self._bound_kwargs.items()]
        return f"{type(self).__name__}({self.label()}({', '.join(arguments)}))"

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        if name == "bind":
            raise AttributeError(f".bind() cannot be used again on {type(self)} ")
        if name == "remote":
            raise AttributeError(
                f".remote() cannot be used on {type(self)}. "
                "To execute the task graph for this node, use .execute()."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _short(value: Any) -> str:
    if isinstance(value, DAGNode):
        return value.label()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def all_upstream(node: DAGNode) -> list[DAGNode]:
    """Return `node` and all that must be called before it, in an order in which that works."""
    found = {node}
    waiting = [node]
    while waiting:
        for other in waiting.pop().dependencies():
            if other not in found:
                found.add(other)
                waiting.append(other)
    return sorted(found, key=lambda each: each._order)
