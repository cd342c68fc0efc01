"""How many bytes and rows a plan is about, before any of it has run."""

from __future__ import annotations

from skate.data._plan import nodes


def source_bytes(node: nodes.Node) -> int | None:
    """Return the bytes of all sources of a plan, as far as they say so; None if one does not."""
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
    """Return the exact number of rows of a plan, where it can be told without running it."""
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
