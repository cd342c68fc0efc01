"""Optimizes a plan without changing its rows.

Three passes: push filters down towards the source, and into it if it supports them; push limits down below operations
that keep the number of rows; and remove unused columns from the sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from skate.data._aggregates.base import AggregateFnV2
from skate.data._plan import nodes
from skate.data._plan.nodes import Node

# Operations that keep their rows: a filter above them can be applied below.
_SAME_ROWS = (nodes.Sort, nodes.Shuffle, nodes.Union)


def optimize(node: Node) -> Node:
    """Return a plan with the same rows in the same order and less work."""
    return _prune_columns(_push_limits(_push_filters(node)), None)


# ------------------------------------------------------------ filters


def _push_filters(node: Node) -> Node:
    node = nodes.map_inputs(node, _push_filters)
    return _push_filter(node) if isinstance(node, nodes.Filter) else node


def _push_filter(node: nodes.Filter) -> Node:
    """Return the plan with a filter pushed down as far as possible."""
    below = node.input
    predicate = node.expression
    if not predicate.is_deterministic() or predicate.needs_actor() or not node.compute.runs_anywhere():
        return node
    if (
        isinstance(below, nodes.Filter)
        and below.compute.runs_anywhere()
        and below.expression.is_deterministic()
    ):
        return _push_filter(replace(below, expression=below.expression & predicate))
    if isinstance(below, _SAME_ROWS):
        return nodes.map_inputs(below, lambda each: _push_filter(replace(node, input=each)))
    if isinstance(below, nodes.EachRow) and below.kind == "Filter":
        # An expression is much cheaper than a function call per row.
        return replace(below, input=_push_filter(replace(node, input=below.input)))
    if isinstance(below, nodes.Project):
        names = _plain_names(below.expressions)
        if names is not None and not predicate.reads_all_columns() and predicate.columns() <= names.keys():
            renamed = predicate.substitute(names)
            return replace(below, input=_push_filter(replace(node, input=below.input, expression=renamed)))
    if isinstance(below, nodes.Read) and not predicate.reads_all_columns():
        better = below.source.apply_predicate(predicate)
        if better is not None:
            source, rest = better
            read = replace(below, source=source)
            return read if rest is None else replace(node, input=read, expression=rest)
    return node


def _plain_names(expressions: Iterable[Any]) -> dict[str, Any] | None:
    """Return the columns that a projection selects or renames, by name; None if it contains `star()`."""
    from skate.data.expressions import AliasExpr, ColumnExpr

    found: dict[str, Any] = {}
    for each in expressions:
        if each.reads_all_columns() or each.name is None:
            return None
        inner = each.expr if isinstance(each, AliasExpr) else each
        if isinstance(inner, ColumnExpr):
            found[each.name] = inner
    return found


# ------------------------------------------------------------ limits


def _push_limits(node: Node) -> Node:
    if isinstance(node, nodes.Limit):
        below = node.input
        if isinstance(below, nodes.Limit):
            return _push_limits(replace(below, rows=min(below.rows, node.rows)))
        if _keeps_row_count(below):
            return nodes.map_inputs(below, lambda each: _push_limits(nodes.Limit(each, node.rows)))
    return nodes.map_inputs(node, _push_limits)


def _keeps_row_count(node: Node) -> bool:
    match node:
        case nodes.EachRow(kind="Map"):
            return node.failures.on_error == "raise"
        case nodes.EachBlock():
            return node.keeps_rows
        case nodes.Project():
            return True
        case _:
            return False


# ------------------------------------------------------------ columns


def _prune_columns(node: Node, needed: frozenset[str] | None) -> Node:
    """Return a plan whose sources read only the needed columns; None needs all columns."""
    match node:
        case nodes.Read():
            return _prune_source(node, needed)
        case nodes.Project():
            below = _columns_read(node.expressions, needed)
        case nodes.Filter():
            below = _union(needed, _columns_read([node.expression], None))
        case nodes.Sort() | nodes.Repartition():
            below = _union(needed, frozenset(node.keys))
        case nodes.Limit() | nodes.Shuffle() | nodes.ShuffleBlocks() | nodes.Resize():
            below = needed
        case nodes.Aggregate():
            below = _aggregate_columns(node)
        case _:
            below = None
    return nodes.map_inputs(node, lambda each: _prune_columns(each, below))


def _union(needed: frozenset[str] | None, more: frozenset[str] | None) -> frozenset[str] | None:
    return None if needed is None or more is None else needed | more


def _columns_read(expressions: Iterable[Any], needed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the columns that expressions read to compute the needed columns."""
    found: set[str] = set()
    made = set()
    passes_all = False
    for each in expressions:
        passes_all = passes_all or each.reads_all_columns()
        if not each.reads_all_columns():
            made.add(each.name)
        found |= each.columns()
    if not passes_all:
        return frozenset(found)
    # `star()` keeps all columns: read the needed ones that are not recomputed.
    return None if needed is None else frozenset(found | (needed - made))


def _aggregate_columns(node: nodes.Aggregate) -> frozenset[str] | None:
    found = set(node.keys)
    for each in node.aggregates:
        if not isinstance(each, AggregateFnV2):
            return None  # a user function, which gets whole rows
        column = each.get_target_column()
        if column is not None:
            found.add(column)
    return frozenset(found)


def _prune_source(node: nodes.Read, needed: frozenset[str] | None) -> Node:
    if needed is None:
        return node
    schema = node.source.schema()
    if schema is None or not needed or not needed < set(schema.names):
        return node  # all columns are needed, or one is missing, which the operation reports
    better = node.source.apply_projection([name for name in schema.names if name in needed])
    return node if better is None else replace(node, source=better)
