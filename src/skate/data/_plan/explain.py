"""A plan as text."""

from __future__ import annotations

from skate.data._plan import estimates, nodes
from skate.data._plan.optimizer import optimized
from skate.data.context import DataContext


def explained(node: nodes.Node, context: DataContext) -> str:
    """Return a plan as the user wrote it, and as it will run."""
    better = optimized(node)
    size = estimates.source_bytes(better)
    where = "in this process" if size is not None and size <= context.small_plan_bytes else "on workers"
    return "\n".join(
        [
            "-------- Logical Plan --------",
            *_lines(node),
            "-------- Logical Plan (Optimized) --------",
            *_lines(better),
            f"-------- About {_bytes(size)} to read; runs {where} --------",
        ]
    )


def _lines(node: nodes.Node, depth: int = 0) -> list[str]:
    rows = estimates.row_count(node)
    known = "" if rows is None else f"  ({rows} rows)"
    mark = "+- " if depth else ""
    lines = [f"{'   ' * max(0, depth - 1)}{mark}{node.title}{known}"]
    for each in node.inputs:
        lines.extend(_lines(each, depth + 1))
    return lines


def _bytes(size: int | None) -> str:
    if size is None:
        return "an unknown amount"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
