"""Infers the schema of a plan without running it: each operation is applied to empty tables."""

from __future__ import annotations

import pyarrow as pa

from skate.data._block import schemas
from skate.data._block.errors import SchemaConflictError
from skate.data._expressions.projection import exprlist_to_fields
from skate.data._plan import nodes


def infer_schema(node: nodes.Node) -> pa.Schema | None:
    """Return the schema of a plan; None if it is unknown before the plan runs, or if the plan will raise."""
    match node:
        case nodes.Values():
            found = [item.schema for item in node.items if item.schema.names]
            return schemas.unify(found) if found else None
        case nodes.Read():
            known = getattr(node.source, "schema", None)
            return None if known is None else known()
        case (
            nodes.Limit()
            | nodes.Sort()
            | nodes.Shuffle()
            | nodes.ShuffleBlocks()
            | nodes.Repartition()
            | nodes.Resize()
            | nodes.Filter()
            | nodes.EachRow(kind="Filter")
        ):
            return infer_schema(node.input)
        case nodes.Project():
            below = infer_schema(node.input)
            fields = None if below is None else exprlist_to_fields(node.expressions, below)
            return None if fields is None else pa.schema(fields)
        case nodes.EachBlock():
            return _infer_each_block(node)
        case nodes.Union():
            return _infer_union(node)
        case nodes.Aggregate():
            return _infer_aggregate(node)
        case nodes.Join():
            return _infer_join(node)
        case _:
            return None  # a user function


def _infer_each_block(node: nodes.EachBlock) -> pa.Schema | None:
    below = infer_schema(node.input)
    if below is None:
        return None
    try:
        return node.function(below.empty_table(), 0).schema
    except (ValueError, TypeError, KeyError):
        return None


def check_union(node: nodes.Union) -> None:
    """Raise if concatenated datasets have columns without a common type.

    Raises:
        SchemaConflictError: A column has two types without a common one.
    """
    schemas.unify(schema for each in node.inputs if (schema := infer_schema(each)) is not None)


def _infer_union(node: nodes.Union) -> pa.Schema | None:
    found = [schema for each in node.inputs if (schema := infer_schema(each)) is not None]
    try:
        return schemas.unify(found) if len(found) == len(node.inputs) else None
    except SchemaConflictError:
        return None


def _infer_aggregate(node: nodes.Aggregate) -> pa.Schema | None:
    from skate.data._kernels import grouping

    below = infer_schema(node.input)
    if below is None or not grouping.are_built_in(node.aggregates):
        return None
    keys, aggregates = list(node.keys), list(node.aggregates)
    try:
        states = grouping.partial_aggregate(below.empty_table(), keys, aggregates)
        return grouping.finalize(grouping.combine(states, keys, aggregates), keys, aggregates).schema
    except (ValueError, TypeError):
        return None


def _infer_join(node: nodes.Join) -> pa.Schema | None:
    from skate.data._kernels import joining

    left, right = infer_schema(node.left), infer_schema(node.right)
    if left is None or right is None:
        return None
    how: joining.JoinKind = node.how  # type: ignore[assignment]  # checked when the plan was made
    try:
        return joining.join(
            left.empty_table(),
            right.empty_table(),
            how,
            list(node.left_keys),
            list(node.right_keys),
            *node.suffixes,
        ).schema
    except (ValueError, TypeError):
        return None
