"""Drawings of graphs in the DOT language or as text."""

from __future__ import annotations

import importlib
import logging
import pathlib
from typing import Any

from skate.dag._plan import Plan
from skate.dag.class_node import ClassMethodNode, ClassMethodOutputNode
from skate.dag.dag_node import DAGNode, all_upstream
from skate.dag.input_node import InputAttributeNode
from skate.dag.output_node import MultiOutputNode

_logger = logging.getLogger(__name__)


class GraphDrawing:
    """Labels of nodes and the edges between them.

    Args:
        labels: Label of each node; its index is the number of the node.
        edges: Pairs of node numbers.
    """

    def __init__(self, labels: list[str], edges: list[tuple[int, int]]) -> None:
        self.labels = labels
        self.edges = edges

    def dot(self) -> str:
        """Return the graph in the DOT language."""
        lines = ["digraph compiled_graph {"]
        for number, label in enumerate(self.labels):
            text = label.replace('"', "'")
            lines.append(f'    {number} [label="Task {number}  {text}" shape=rectangle]')
        lines += [f"    {source} -> {target}" for source, target in self.edges]
        return "\n".join([*lines, "}", ""])

    def ascii(self) -> str:
        """Return the graph as two lists, nodes and edges."""
        nodes = [f'{number} [label="Task {number}  {label}"]' for number, label in enumerate(self.labels)]
        edges = [f"{source} ---> {target}" for source, target in self.edges]
        legend = "---> : Represents Shared Memory data channels"
        return "\n".join(
            ["Nodes Information:", *nodes, "", "Edges Information:", *edges, "", "Legend:", legend, ""]
        )


def draw_compiled(plan: Plan, filename: str, format: str, view: bool) -> str:
    """Draw a compiled graph; see `CompiledDAG.visualize`."""
    picture = _draw(plan)
    if format == "ascii":
        if view:
            raise ValueError("The format 'ascii' cannot be viewed: print the return value of visualize.")
        return picture.ascii()
    source = picture.dot()
    _write(source, f"{filename}.{format}", format, view)
    return source


def plot(dag: DAGNode, to_file: str | None = None) -> str:
    """Draw a graph.

    Args:
        dag: The last node of the graph.
        to_file: The file to write. Its extension selects the format; all but ".dot" need the `graphviz` package.

    Returns:
        The graph in the DOT language.
    """
    nodes = all_upstream(dag)
    names = _unique([node.label() for node in nodes])
    name_of = dict(zip(nodes, names, strict=True))
    lines = ["digraph G {", "    rankdir=LR;", *(f'    "{name}";' for name in names)]
    for node in nodes:
        lines += [f'    "{name_of[other]}" -> "{name_of[node]}";' for other in node.dependencies()]
    source = "\n".join([*lines, "}", ""])
    if to_file is not None:
        format = pathlib.Path(to_file).suffix.lstrip(".") or "png"
        _write(source, to_file, format, False)
    return source


def _draw(plan: Plan) -> GraphDrawing:
    """Number the nodes by their distance from the input."""
    inside = set(plan.nodes)
    output: Any = plan.root if plan.is_multi else object()
    numbers: dict[Any, int] = {plan.input: 0}
    labels: list[str] = [_label(plan.input)]
    edges: list[tuple[int, int]] = []
    for node in _iterate_growing(numbers):
        after = [other for other in getattr(node, "_downstream", ()) if other in inside]
        if not plan.is_multi and node is plan.root:
            after.append(output)
        for other in dict.fromkeys(after):
            if other not in numbers:
                numbers[other] = len(labels)
                labels.append("MultiOutputNode" if other is output else _label(other))
            edges.append((numbers[node], numbers[other]))
    return GraphDrawing(labels, edges)


def _iterate_growing(numbers: dict[Any, int]) -> Any:
    """Yield the keys of a dictionary, including those added during iteration."""
    done = 0
    while done < len(numbers):
        yield list(numbers)[done]
        done += 1


def _label(node: DAGNode) -> str:
    if isinstance(node, ClassMethodOutputNode):
        return f"ClassMethodOutputNode[{node.output_idx}]"
    if isinstance(node, ClassMethodNode):
        return f"Actor: {node.actor} Method: {node.get_method_name()}"
    if isinstance(node, InputAttributeNode):
        return f"InputAttributeNode[{node.key}]"
    return "MultiOutputNode" if isinstance(node, MultiOutputNode) else "InputNode"


def _unique(names: list[str]) -> list[str]:
    counts: dict[str, int] = {}
    unique = []
    for name in names:
        count = counts.get(name, 0)
        counts[name] = count + 1
        unique.append(f"{name}_{count}" if count else name)
    return unique


def _write(source: str, file: str, format: str, view: bool) -> None:
    path = pathlib.Path(file)
    if format != "dot":
        try:
            graphviz = importlib.import_module("graphviz")
        except ImportError:
            if view:
                raise ImportError("viewing a graph needs graphviz: pip install graphviz") from None
            path = path.with_suffix(".dot")
            _logger.warning("Rendering needs graphviz (pip install graphviz); wrote the source to %s", path)
        else:
            graphviz.Source(source).render(path.with_suffix(""), format=format, view=view, cleanup=True)
            return
    path.write_text(source, encoding="utf-8")
