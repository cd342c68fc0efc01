"""A plan as text."""

from __future__ import annotations

from skate.data._plan import estimates, nodes, relational
from skate.data._plan.optimizer import optimize
from skate.data.context import DataContext


def explained(node: nodes.Node, context: DataContext) -> str:
    """Return a plan as the user wrote it, and as it will run."""
    better = optimize(node)
    size = estimates.source_bytes(better)
    if size is not None and size <= context.small_plan_bytes:
        where = "in this process"
    elif relational.runs_on_threads(better, context):
        where = "on threads of this process"
    else:
        where = "on workers"
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
    mark = "+- " if depth else ""
    lines = [f"{'   ' * max(0, depth - 1)}{mark}{node.title}{_pushed(node)}{_size(node)}"]
    for each in node.inputs:
        lines.extend(_lines(each, depth + 1))
    return lines


def _pushed(node: nodes.Node) -> str:
    """Return what the source itself does of the plan: columns it leaves out, and filters it applies."""
    tell = getattr(node.source, "pushed", None) if isinstance(node, nodes.Read) else None
    found: dict[str, str] = tell() if tell is not None else {}
    return f"[{', '.join(f'{name}: {value}' for name, value in found.items())}]" if found else ""


def _size(node: nodes.Node) -> str:
    rows, size = estimates.row_count(node), estimates.output_bytes(node)
    known = [] if rows is None else [f"{rows} rows"]
    if size is not None:
        # Without a number of rows it is not known how many a filter leaves.
        known.append(f"about {_bytes(size)}" if rows is not None else f"at most about {_bytes(size)}")
    return f"  ({', '.join(known)})" if known else ""


def _bytes(size: int | None) -> str:
    if size is None:
        return "an unknown amount"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
