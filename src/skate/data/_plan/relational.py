"""Relational plans: plans of columnar operations only, which threads of this process can run.

Reading with Arrow, expressions, sorting, grouping, joining and shuffling call no user function and release the
interpreter lock. If all rows fit into the memory of one process, such a plan gains nothing from workers, which have to
start and receive a copy of every block. Plans without a barrier stream through workers, which keep the interpreter of
the consumer free.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from skate._api.machine import free_memory
from skate.data._expressions.calls import UDFExpr
from skate.data._expressions.expr import Expr
from skate.data._plan import estimates, nodes
from skate.data.context import DataContext

# Formats that Arrow decodes, by the modules of their sources, which are not imported here. A class that a user derives
# from such a source is in another module and counts as user code.
_SOURCES = {f"skate.data._io.{name}" for name in ("parquet", "csv", "arrow_ipc", "orc", "memory")}
_BARRIERS = (nodes.Sort, nodes.Aggregate, nodes.Join, nodes.Shuffle)
_OTHERS = (
    *(nodes.Values, nodes.Limit, nodes.Union, nodes.Zip),
    *(nodes.Repartition, nodes.Resize, nodes.ShuffleBlocks),
)
# Sources may have this fraction of the free memory: a sort needs the rows, a copy for Polars and the result, and a join
# has two sides.
_MEMORY_DIVISOR = 8


def runs_on_threads(node: nodes.Node, context: DataContext) -> bool:
    """Return whether threads of this process should run a plan."""
    if not any(isinstance(each, _BARRIERS) for each in node.walk()):
        return False
    if not all(_is_relational(each) for each in node.walk()):
        return False
    size = estimates.source_bytes(node)
    return size is not None and size <= max_source_bytes(context)


def max_source_bytes(context: DataContext) -> int:
    """Return the maximum bytes of the sources of a plan that threads of this process run."""
    limits = [context.relational_plan_bytes, free_memory() // _MEMORY_DIVISOR]
    if context.memory_budget is not None:
        limits.append(context.memory_budget)
    store = context.execution_options.resource_limits.object_store_memory
    if store is not None and store != float("inf"):
        limits.append(int(store))
    return min(limits)


def with_fast_readers(node: nodes.Node, below_barrier: bool = False) -> nodes.Node:
    """Return a plan in which sources below a barrier are read as a whole."""
    if isinstance(node, nodes.Read):
        at_once = getattr(node.source, "at_once", None)
        return node if at_once is None or not below_barrier else replace(node, source=at_once())
    if isinstance(node, nodes.Limit):
        below_barrier = False  # a few rows may be enough
    elif isinstance(node, _BARRIERS):
        below_barrier = True
    return nodes.map_inputs(node, partial(with_fast_readers, below_barrier=below_barrier))


def has_own_reader(node: nodes.Read) -> bool:
    """Return whether a source is read without user code, by readers that release the interpreter lock."""
    source = node.source
    return (
        type(source).__module__ in _SOURCES
        and getattr(source, "_block_udf", None) is None
        and node.compute.runs_anywhere()
    )


def _is_relational(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Read):
        return has_own_reader(node)
    if isinstance(node, nodes.Project):
        return node.compute.runs_anywhere() and all(map(_is_ours, node.expressions))
    if isinstance(node, nodes.Filter):
        return node.compute.runs_anywhere() and _is_ours(node.expression)
    if isinstance(node, nodes.Aggregate):
        return _has_kernels(node)
    return isinstance(node, _BARRIERS + _OTHERS)


def _is_ours(expression: Expr) -> bool:
    """Return whether an expression calls no user function; built-in functions have their own classes."""
    return not any(type(each) is UDFExpr for each in expression.walk())


def _has_kernels(node: nodes.Aggregate) -> bool:
    from skate.data._kernels.lists import COLLECTIONS
    from skate.data._kernels.reductions import REDUCTIONS

    return all(type(each) in REDUCTIONS or type(each) in COLLECTIONS for each in node.aggregates)
