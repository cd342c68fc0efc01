"""Estimates of the bytes and rows of a plan, without running it."""

from __future__ import annotations

from skate.data._expressions.nodes import ColumnExpr
from skate.data._plan import nodes


def source_bytes(node: nodes.Node) -> int | None:
    """Return the bytes of all sources of a plan; None if a source does not know its size."""
    total = 0
    for each in node.walk():
        if isinstance(each, nodes.Read):
            size = each.source.estimate_inmemory_data_size()
            if size is None:
                return None
            total += size
        elif isinstance(each, nodes.Values):
            total += sum(item.bytes for item in each.items)
    return total


def row_count(node: nodes.Node) -> int | None:
    """Return the exact number of rows of a plan; None if it is unknown before the plan runs."""
    match node:
        case nodes.Values():
            return sum(item.rows for item in node.items)
        case nodes.Read():
            known = getattr(node.source, "num_rows", None)
            return known() if known is not None else None
        case nodes.Limit():
            below = row_count(node.input)
            return None if below is None else min(below, node.rows)
        case nodes.EachRow(kind="Map") if node.failures.on_error == "raise":
            return row_count(node.input)
        case nodes.EachBlock(keeps_rows=True):
            return row_count(node.input)
        case (
            nodes.Project()
            | nodes.Sort()
            | nodes.Shuffle()
            | nodes.ShuffleBlocks()
            | nodes.Repartition()
            | nodes.Resize()
        ):
            return row_count(node.input)
        case nodes.Union():
            counts = [row_count(each) for each in node.inputs]
            return None if None in counts else sum(count for count in counts if count is not None)
        case nodes.Zip():
            return row_count(node.inputs[0])
        case _:
            return None


def output_bytes(node: nodes.Node) -> int | None:
    """Return an upper estimate of the output of a plan in bytes; None if it is unknown before the plan runs."""
    match node:
        case nodes.Values():
            return sum(item.bytes for item in node.items)
        case nodes.Read():
            size: int | None = node.source.estimate_inmemory_data_size()
            return size
        case nodes.Limit():
            return _limited_bytes(output_bytes(node.input), row_count(node.input), node.rows)
        case nodes.Project():
            return _projected_bytes(node)
        case (
            nodes.Filter()
            | nodes.Sort()
            | nodes.Shuffle()
            | nodes.ShuffleBlocks()
            | nodes.Repartition()
            | nodes.Resize()
        ):
            return output_bytes(node.input)
        case nodes.Union() | nodes.Zip():
            sizes = [output_bytes(each) for each in node.inputs]
            return None if None in sizes else sum(size for size in sizes if size is not None)
        case _:
            return None  # user functions, groups and joins


def _limited_bytes(size: int | None, rows: int | None, kept: int) -> int | None:
    if size is None or rows is None:
        return size
    return size * min(kept, rows) // rows if rows else 0


def _projected_bytes(node: nodes.Project) -> int | None:
    """Return the bytes of the selected columns of a source; None if a column is computed."""
    names = [each.name for each in node.expressions]
    if not all(isinstance(each, ColumnExpr) for each in node.expressions):
        return None
    if not isinstance(node.input, nodes.Read):
        return output_bytes(node.input)
    narrow = node.input.source.apply_projection(names)
    return None if narrow is None else narrow.estimate_inmemory_data_size()
