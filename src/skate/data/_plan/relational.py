"""Which plans consist of operations on whole columns alone, so that threads of this process can run them.

Reading with Arrow, expressions, sorting, grouping, joining and shuffling call nothing of the user's, and work without
the interpreter. As long as all rows fit into the memory of one process, such a plan gains nothing from workers: they
would have to be started, and every block would be copied for them. A plan that gathers nothing streams through workers
as before: they keep the consumer's interpreter free.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from skate._api.machine import free_memory
from skate.data._expressions.calls import UDFExpr
from skate.data._expressions.expr import Expr
from skate.data._plan import estimates, nodes
from skate.data.context import DataContext

# Formats that Arrow decodes, by the modules of their sources, so that none is imported for it. A class that a user has
# derived from one of them is the user's.
_SOURCES = {f"skate.data._io.{name}" for name in ("parquet", "csv", "arrow_ipc", "orc", "memory")}
_BARRIERS = (nodes.Sort, nodes.Aggregate, nodes.Join, nodes.Shuffle)
_OTHERS = (
    *(nodes.Values, nodes.Limit, nodes.Union, nodes.Zip),
    *(nodes.Repartition, nodes.Resize, nodes.ShuffleBlocks),
)
# Sorting needs the rows, Polars's copy of them, and the result; a join has two sides.
_SHARE_OF_MEMORY = 8


def runs_on_threads(node: nodes.Node, context: DataContext) -> bool:
    """Tell whether threads of this process should run a plan."""
    if not any(isinstance(each, _BARRIERS) for each in node.walk()):
        return False
    if not all(_is_relational(each) for each in node.walk()):
        return False
    size = estimates.source_bytes(node)
    return size is not None and size <= most_bytes(context)


def most_bytes(context: DataContext) -> int:
    """Return how many bytes the sources of a plan may have that threads of this process run."""
    limits = [context.relational_plan_bytes, free_memory() // _SHARE_OF_MEMORY]
    if context.memory_budget is not None:
        limits.append(context.memory_budget)
    store = context.execution_options.resource_limits.object_store_memory
    if store is not None and store != float("inf"):
        limits.append(int(store))
    return min(limits)


def with_fast_readers(node: nodes.Node, gathered: bool = False) -> nodes.Node:
    """Return a plan whose sources are read at once where all of their rows are gathered anyway."""
    if isinstance(node, nodes.Read):
        at_once = getattr(node.source, "at_once", None)
        return node if at_once is None or not gathered else replace(node, source=at_once())
    if isinstance(node, nodes.Limit):
        gathered = False  # a few rows may be enough
    elif isinstance(node, _BARRIERS):
        gathered = True
    return nodes.over(node, partial(with_fast_readers, gathered=gathered))


def _is_relational(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Read):
        source = node.source
        return (
            type(source).__module__ in _SOURCES
            and getattr(source, "_block_udf", None) is None
            and node.compute.runs_anywhere()
        )
    if isinstance(node, nodes.Project):
        return node.compute.runs_anywhere() and all(map(_is_ours, node.expressions))
    if isinstance(node, nodes.Filter):
        return node.compute.runs_anywhere() and _is_ours(node.expression)
    if isinstance(node, nodes.Aggregate):
        return _has_kernels(node)
    return isinstance(node, _BARRIERS + _OTHERS)


def _is_ours(expression: Expr) -> bool:
    """Tell whether an expression calls no function of the user's; what Skate defines itself has a class of its own."""
    return not any(type(each) is UDFExpr for each in expression.walk())


def _has_kernels(node: nodes.Aggregate) -> bool:
    from skate.data._kernels.lists import COLLECTIONS
    from skate.data._kernels.reductions import REDUCTIONS

    return all(type(each) in REDUCTIONS or type(each) in COLLECTIONS for each in node.aggregates)
