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
            f"{root} was compiled before, and a graph can be compiled once, even if it is torn down. Execute the "
            "compiled graph again, or bind a new one."
        )
    if before is not None:
        raise ValueError(
            f"{root} shares nodes with the compiled graph that ends in {before}. A node can be part of one compiled "
            "graph: compile both ends as one graph with MultiOutputNode, or bind the nodes again."
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
                f"A compiled graph calls actors that exist, but {node} describes one that is yet to be created. Create "
                "it with .remote() instead of .bind()."
            )
    for output in outputs:
        if not isinstance(output, ClassMethodNode):
            raise ValueError(f"An output of a compiled DAG must be an actor method node, got {output}.")


def _find_input(root: DAGNode, nodes: list[DAGNode]) -> InputNode:
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    if not inputs:
        first = next(iter(nodes))
        raise ValueError(
            f"A compiled graph needs an input, but {first} and the other nodes have none. Bind the graph that ends in "
            f"{root} inside of `with InputNode() as value:`."
        )
    if len(inputs) > 1:
        raise ValueError(f"Each DAG should only have one unique InputNode, found {len(inputs)}.")
    return inputs[0]


def _used_attributes(input: InputNode, nodes: list[DAGNode]) -> list[InputAttributeNode]:
    attributes = [node for node in nodes if isinstance(node, InputAttributeNode)]
    whole = any(input in node.upstream() for node in nodes)
    if whole and attributes:
        raise ValueError(
            "Some calls of the graph take the whole input, and others parts of it, such as value[0] or value.x. Use "
            "either the whole input everywhere, or parts of it."
        )
    used = {node.key for node in attributes}
    unused = [key for key in input._attributes if key not in used]
    if attributes and unused:
        raise ValueError(
            "The output of the graph does not depend on these bound parts of its input: "
            f"{', '.join(map(repr, unused))}. Remove the nodes that take them, or add those nodes to the output."
        )
    return attributes


def _check_arguments(node: DAGNode) -> None:
    if not isinstance(node, ClassMethodNode) or isinstance(node, ClassMethodOutputNode):
        return
    for key, template in node._keyword_templates.items():
        if template.nodes:
            raise ValueError(
                f"{node} takes {key}={template.nodes[0]}: in a compiled graph a node cannot be a keyword argument. "
                "Pass it as a positional argument."
            )
    for template in node._templates:
        if template.nodes and not template.is_node:
            raise ValueError(
                f"The argument {template.value} of {node} contains {len(template.nodes)} nodes: in a compiled graph a "
                "node cannot be part of a list, dictionary or other container. Pass each one as a separate argument."
            )
    if not node.upstream():
        raise ValueError(
            f"{node} takes no node of the graph, so a compiled graph would not know when to run it. Pass it the "
            "InputNode or the output of another call."
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
            f"The graph never uses the results of {', '.join(leaf.label() for leaf in leaves)}, so that their errors "
            "would get lost. Add them to the outputs, with MultiOutputNode([...])."
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
