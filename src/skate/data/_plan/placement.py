"""Decides which plans begin in the process of their consumer.

Workers have to start, and receive each block through shared memory. Small plans, and plans that only read and map up to
some tens of megabytes, are often done before that pays off. If they are not, workers take over.
"""

from __future__ import annotations

from dataclasses import replace

from skate.air import _filesystems as filesystems
from skate.data._plan import estimates, nodes, relational
from skate.data.context import DataContext

# A plan that reads and maps may have this many times the bytes of a small plan: it holds only a few blocks at a time.
_STREAMING_FACTOR = 32
_STREAMING = (
    nodes.Read,
    nodes.EachRow,
    nodes.EachBatch,
    nodes.EachBlock,
    nodes.Project,
    nodes.Filter,
    nodes.Limit,
)


def is_small(node: nodes.Node, context: DataContext) -> bool:
    """Return whether a plan is small enough to begin in this process, and no function needs a worker."""
    return _is_within(node, context.small_plan_bytes) and _runs_anywhere(node)


def is_short_stream(node: nodes.Node, context: DataContext) -> bool:
    """Return whether a plan reads local files and maps their rows, and may begin in this process."""
    return (
        all(isinstance(each, _STREAMING) for each in node.walk())
        and all(_is_local(each) for each in node.walk() if isinstance(each, nodes.Read))
        and _runs_anywhere(node)
        and _is_within(node, _STREAMING_FACTOR * context.small_plan_bytes)
    )


def with_parallel_readers(node: nodes.Node) -> nodes.Node:
    """Return a plan whose sources decode columns on all processors, because one task runs at a time."""
    if isinstance(node, nodes.Read):
        in_parallel = getattr(node.source, "in_parallel", None)
        return node if in_parallel is None else replace(node, source=in_parallel())
    return nodes.map_inputs(node, with_parallel_readers)


def _is_within(node: nodes.Node, most: int) -> bool:
    size = estimates.source_bytes(node)
    return size is not None and size <= most


def _runs_anywhere(node: nodes.Node) -> bool:
    return all(
        each.compute.runs_anywhere() and not (hasattr(each, "udf") and each.udf.is_class)
        for each in node.walk()
        if hasattr(each, "compute")
    )


def _is_local(node: nodes.Read) -> bool:
    filesystem = getattr(node.source, "_filesystem", None)  # None: numbers, or rows of the program
    return relational.has_own_reader(node) and (filesystem is None or filesystems.is_local(filesystem))
