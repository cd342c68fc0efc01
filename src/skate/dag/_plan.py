"""Validation of graphs to compile, and the resulting plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skate.dag.class_node import ClassMethodNode, ClassMethodOutputNode, ClassNode
from skate.dag.dag_node import DAGNode, all_upstream
from skate.dag.function_node import FunctionNode
from skate.dag.input_node import InputAttributeNode, InputNode
from skate.dag.output_node import MultiOutputNode


class Plan:
    """A validated graph: its input, its calls in order, its outputs.

    Args:
        root: The last node of the graph.

    Raises:
        ValueError: The graph cannot be compiled.
        NotImplementedError: The graph calls functions, which compiled graphs do not support.
    """

    def __init__(self, root: DAGNode) -> None:
        _check_compiled_once(root)
        self.root = root
        self.nodes = all_upstream(root)
        self.is_multi = isinstance(root, MultiOutputNode)
        self.outputs: list[DAGNode] = list(root.get_args()) if self.is_multi else [root]
        _check_kinds(self.nodes, self.outputs)
        self.input = _find_input(root, self.nodes)
        self.attributes = _used_attributes(self.input, self.nodes)
        for node in self.nodes:
            _check_arguments(node)
        _check_leaves(self.nodes, self.outputs)
        self.calls = [
            node for node in self.nodes if isinstance(node, ClassMethodNode) and node.is_class_method_call
        ]
        positional = [node.key for node in self.attributes if isinstance(node.key, int)]
        self.num_positional = max(positional, default=-1) + 1 if self.attributes else 1
        self.keywords = sorted({node.key for node in self.attributes if isinstance(node.key, str)})
        for node in _connected_nodes(self.nodes):
            node._compiled_by = root

    def check_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise ValueError unless the graph can be executed with these arguments."""
        what = "dag.execute() or dag.execute_async() must be called with"
        if len(args) != self.num_positional:
            raise ValueError(f"{what} {self.num_positional} positional args, got {len(args)}")
        for name in self.keywords:
            if name not in kwargs:
                raise ValueError(f"{what} kwarg `{name}`")

    def readers(self, node: DAGNode) -> int:
        """Return the number of calls that take the output of `node`."""
        return sum(node in call.upstream() for call in self.calls)


def _check_compiled_once(root: DAGNode) -> None:
    before = root._compiled_by
    if before is root:
        raise ValueError(
            "It is not allowed to call `experimental_compile` on the same DAG object multiple times no "
            "matter whether `teardown` is called or not. Please reuse the existing compiled DAG or create "
            "a new one."
        )
    if before is not None:
        raise ValueError(
            "The DAG was compiled more than once. The following two nodes call `experimental_compile`: "
            f"(1) {before}, (2) {root}"
        )


def _check_kinds(nodes: list[DAGNode], outputs: list[DAGNode]) -> None:
    for node in nodes:
        if isinstance(node, FunctionNode):
            raise NotImplementedError(
                "Compiled DAGs currently only support actor method nodes, "
                f"but the graph has the function node {node}. Make the function a method of an actor."
            )
        if isinstance(node, ClassNode):
            raise ValueError(
                "Compiled DAGs can only bind methods to an actor that is already created with "
                f"Actor.remote(), but {node} uses Actor.bind()"
            )
    for output in outputs:
        if not isinstance(output, ClassMethodNode):
            raise ValueError(f"An output of a compiled DAG must be an actor method node, got {output}.")


def _find_input(root: DAGNode, nodes: list[DAGNode]) -> InputNode:
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    if not inputs:
        first = next(iter(nodes))
        raise ValueError(
            "No InputNode found in the DAG: when traversing upwards, no upstream node was found for "
            f"{first}. Bind the graph that ends in {root} inside of `with InputNode() as value:`."
        )
    if len(inputs) > 1:
        raise ValueError(f"Each DAG should only have one unique InputNode, found {len(inputs)}.")
    return inputs[0]


def _used_attributes(input: InputNode, nodes: list[DAGNode]) -> list[InputAttributeNode]:
    attributes = [node for node in nodes if isinstance(node, InputAttributeNode)]
    whole = any(input in node.upstream() for node in nodes)
    if whole and attributes:
        raise ValueError(
            "All tasks must either use InputNode() directly, or they must index to specific args or kwargs."
        )
    used = {node.key for node in attributes}
    unused = [key for key in input._attributes if key not in used]
    if attributes and unused:
        expected = ", ".join(str(key) for key in input._attributes)
        raise ValueError(
            f"Compiled Graph expects input to be accessed using all of attributes {expected}, "
            f"but {', '.join(str(key) for key in unused)} is unused. Ensure all input attributes are used "
            "and contribute to the computation of the Compiled Graph output."
        )
    return attributes


def _check_arguments(node: DAGNode) -> None:
    if not isinstance(node, ClassMethodNode) or isinstance(node, ClassMethodOutputNode):
        return
    for key, template in node._keyword_templates.items():
        if template.nodes:
            raise ValueError(
                "Compiled DAG currently does not support binding to other DAG nodes as kwargs: "
                f"{key}={template.nodes[0]} of {node}. Pass it as a positional argument."
            )
    for template in node._templates:
        if template.nodes and not template.is_node:
            raise ValueError(
                f"Found {len(template.nodes)} DAGNodes from the arg {template.value} in {node}. Please "
                "ensure that the argument is a single DAGNode and that a DAGNode is not allowed to be placed "
                "inside any type of container."
            )
    if not node.upstream():
        raise ValueError(
            "Compiled DAGs require each task to take a ray.dag.InputNode or at least one other DAGNode as "
            f"an input. Invalid task node: {node}"
        )


def _check_leaves(nodes: list[DAGNode], outputs: list[DAGNode]) -> None:
    """Reject calls whose results, and therefore errors, are never retrieved."""
    leaves = [
        node
        for node in _connected_nodes(nodes)
        if isinstance(node, ClassMethodNode) and not node._downstream and node not in outputs
    ]
    if leaves:
        raise ValueError(
            "Compiled DAG doesn't support leaf nodes, i.e., nodes that don't have downstream nodes and are "
            f"not output nodes. There are {len(leaves)} leaf nodes in the DAG. Please add the outputs of "
            f"{[leaf.label() for leaf in leaves]} to the MultiOutputNode."
        )


def _connected_nodes(nodes: list[DAGNode]) -> Iterator[DAGNode]:
    """Yield the nodes and all nodes that depend on them."""
    found = dict.fromkeys(nodes)
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for other in node._downstream:
            if other not in found:
                found[other] = None
                waiting.append(other)
