"""Making the calls of a graph, once."""

from __future__ import annotations

from typing import Any

from skate.dag.dag_node import DAGNode, all_upstream
from skate.dag.input_node import DAGInputData, InputNode, InputNodeError


def execute(root: DAGNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[DAGNode, Any]:
    """Make the calls of the graph that ends in `root`.

    Returns:
        What each node gave: a reference, a list of them, or an actor handle.
    """
    nodes = all_upstream(root)
    _check_inputs(nodes)
    inputs = args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
    results: dict[DAGNode, Any] = {}
    for node in nodes:
        results[node] = node.call(results.__getitem__, inputs)
    return results


def _check_inputs(nodes: list[DAGNode]) -> None:
    inputs = [node for node in nodes if isinstance(node, InputNode)]
    for node in inputs:
        node.check_context()
    if len(inputs) > 1:
        raise InputNodeError(
            f"Each DAG should only have one unique InputNode, found {len(inputs)}. "
            "Bind the whole graph inside of one `with InputNode() as ...:`."
        )
