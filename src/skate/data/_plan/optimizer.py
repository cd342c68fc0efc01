"""Makes a plan cheaper without changing what it gives.

Three passes: filters go down towards the source, and into it if it can do better than read everything; limits go down
past what makes one row of each; and columns that nobody needs are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from skate.data._aggregates.base import AggregateFnV2
from skate.data._plan import nodes
from skate.data._plan.nodes import Node

# What gives the rows that it gets, and no others: a filter may as well be applied before.
_SAME_ROWS = (nodes.Sort, nodes.Shuffle, nodes.Union)


def optimize(node: Node) -> Node:
    """Return a plan that gives the same rows in the same order, with less work."""
    return _with_needed_columns(_with_limits_down(_with_filters_down(node)), None)


# ------------------------------------------------------------ filters


def _with_filters_down(node: Node) -> Node:
    node = nodes.over(node, _with_filters_down)
    return _pushed(node) if isinstance(node, nodes.Filter) else node


def _pushed(node: nodes.Filter) -> Node:
    """Return a filter moved below what it stands on, as far as it can go."""
    below = node.input
    predicate = node.expression
    if not predicate.is_deterministic() or predicate.needs_actor() or not node.compute.runs_anywhere():
        return node
    if (
        isinstance(below, nodes.Filter)
        and below.compute.runs_anywhere()
        and below.expression.is_deterministic()
    ):
        return _pushed(replace(below, expression=below.expression & predicate))
    if isinstance(below, _SAME_ROWS):
        return nodes.over(below, lambda each: _pushed(replace(node, input=each)))
    if isinstance(below, nodes.EachRow) and below.kind == "Filter":
        # An expression costs next to nothing beside a call for each row.
        return replace(below, input=_pushed(replace(node, input=below.input)))
    if isinstance(below, nodes.Project):
        names = _plain_names(below.expressions)
        if names is not None and not predicate.reads_all_columns() and predicate.columns() <= names.keys():
            renamed = predicate.substitute(names)
            return replace(below, input=_pushed(replace(node, input=below.input, expression=renamed)))
    if isinstance(below, nodes.Read) and not predicate.reads_all_columns():
        better = below.source.apply_predicate(predicate)
        if better is not None:
            source, rest = better
            read = replace(below, source=source)
            return read if rest is None else replace(node, input=read, expression=rest)
    return node


def _plain_names(expressions: Iterable[Any]) -> dict[str, Any] | None:
    """Return the columns that a projection only picks or renames, by their names; None if all columns pass through."""
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


def _with_limits_down(node: Node) -> Node:
    if isinstance(node, nodes.Limit):
        below = node.input
        if isinstance(below, nodes.Limit):
            return _with_limits_down(replace(below, rows=min(below.rows, node.rows)))
        if _makes_one_of_each(below):
            return nodes.over(below, lambda each: _with_limits_down(nodes.Limit(each, node.rows)))
    return nodes.over(node, _with_limits_down)


def _makes_one_of_each(node: Node) -> bool:
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


def _with_needed_columns(node: Node, needed: frozenset[str] | None) -> Node:
    """Return a plan whose sources read only what is needed; None is everything."""
    match node:
        case nodes.Read():
            return _narrowed(node, needed)
        case nodes.Project():
            below = _read_by(node.expressions, needed)
        case nodes.Filter():
            below = _and(needed, _read_by([node.expression], None))
        case nodes.Sort() | nodes.Repartition():
            below = _and(needed, frozenset(node.keys))
        case nodes.Limit() | nodes.Shuffle() | nodes.ShuffleBlocks() | nodes.Resize():
            below = needed
        case nodes.Aggregate():
            below = _aggregated(node)
        case _:
            below = None
    return nodes.over(node, lambda each: _with_needed_columns(each, below))


def _and(needed: frozenset[str] | None, more: frozenset[str] | None) -> frozenset[str] | None:
    return None if needed is None or more is None else needed | more


def _read_by(expressions: Iterable[Any], needed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the columns that expressions read, to make those that are needed further on."""
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
    # `star()` passes on what is there; of that, what is needed and not made anew.
    return None if needed is None else frozenset(found | (needed - made))


def _aggregated(node: nodes.Aggregate) -> frozenset[str] | None:
    found = set(node.keys)
    for each in node.aggregates:
        if not isinstance(each, AggregateFnV2):
            return None  # a function of the user's, which gets whole rows
        column = each.get_target_column()
        if column is not None:
            found.add(column)
    return frozenset(found)


def _narrowed(node: nodes.Read, needed: frozenset[str] | None) -> Node:
    if needed is None:
        return node
    schema = node.source.schema()
    if schema is None or not needed or not needed < set(schema.names):
        return node  # nothing to leave out; or a column that is not there, which the operation itself complains about
    better = node.source.apply_projection([name for name in schema.names if name in needed])
    return node if better is None else replace(node, source=better)
