"""Text about a dataset: its plan, and the statistics of its latest execution."""

from __future__ import annotations

import time

from skate.data._dataset.base import PlanHolder
from skate.data._exec.items import fetch_rows
from skate.data._exec.operator_stats import OperatorStats
from skate.data._exec.operators import Values
from skate.data._execution import Execution
from skate.data._plan import estimates, nodes, placement, relational
from skate.data._plan.optimizer import optimize
from skate.data.context import DataContext


class ExplainMethods(PlanHolder):
    """Methods of `Dataset` that describe its plan and its latest execution."""

    def explain(self) -> None:
        """Print the plan before and after its optimization, with the known sizes."""
        print(explain_plan(self._node, self._context))  # noqa: T201  # printing is the purpose

    def stats(self) -> str:
        """Return the statistics of the latest execution as text: rows, bytes and times of each operator."""
        if self._last is None or self._last.begun is None:
            return "The dataset has not been executed yet: stats are available once rows have been taken from it."
        return stats_text(self._last)

    def dead_letters(self) -> object:
        """Return the dead-letter rows of the latest execution as a dataset.

        These are the rows for which a function with `on_error="dead_letter"` failed. The columns are `row` (the input
        of the function), `step`, `error_type`, `error` and `traceback`.
        """
        from skate.data.dataset import materialized

        last: Execution | None = self._last
        blocks = [] if last is None else [fetch_rows(item) for item in last.dead_letters]
        return materialized(blocks, self._context)


def explain_plan(node: nodes.Node, context: DataContext) -> str:
    """Return the text of a plan before and after its optimization."""
    better = optimize(node)
    size = estimates.source_bytes(better)
    if size is not None and size <= context.small_plan_bytes:
        where = "in this process"
    elif placement.is_short_stream(better, context):
        where = "on workers, or in this process if it is iterated over and short"
    elif relational.runs_on_threads(better, context):
        where = "on threads of this process"
    else:
        where = "on workers"
    return "\n".join(
        [
            "-------- Logical Plan --------",
            *_plan_lines(node),
            "-------- Logical Plan (Optimized) --------",
            *_plan_lines(better),
            f"-------- About {_bytes_text(size)} to read; runs {where} --------",
        ]
    )


def _plan_lines(node: nodes.Node, depth: int = 0) -> list[str]:
    mark = "+- " if depth else ""
    lines = [f"{'   ' * max(0, depth - 1)}{mark}{node.title}{_pushdown_text(node)}{_size_text(node)}"]
    for each in node.inputs:
        lines.extend(_plan_lines(each, depth + 1))
    return lines


def _pushdown_text(node: nodes.Node) -> str:
    """Return the columns and filters that the source applies itself."""
    tell = getattr(node.source, "pushed", None) if isinstance(node, nodes.Read) else None
    found: dict[str, str] = tell() if tell is not None else {}
    return f"[{', '.join(f'{name}: {value}' for name, value in found.items())}]" if found else ""


def _size_text(node: nodes.Node) -> str:
    rows, size = estimates.row_count(node), estimates.output_bytes(node)
    known = [] if rows is None else [f"{rows} rows"]
    if size is not None:
        # Without a number of rows, the size is that before filters.
        known.append(
            f"about {_bytes_text(size)}" if rows is not None else f"at most about {_bytes_text(size)}"
        )
    return f"  ({', '.join(known)})" if known else ""


def _bytes_text(size: int | None) -> str:
    if size is None:
        return "an unknown amount"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def stats_text(execution: Execution) -> str:
    """Return the statistics of an execution: a paragraph per operator, and one for the whole."""
    lines: list[str] = []
    shown = [
        (operator, each)
        for operator, each in execution.stats.items()
        if each.tasks or isinstance(operator, Values)
    ]
    for number, (operator, each) in enumerate(shown, start=1):
        lines.extend(
            _values_lines(number, operator) if isinstance(operator, Values) else _operator_lines(number, each)
        )
    end = execution.ended if execution.ended is not None else time.perf_counter()
    total = end - (execution.begun or end)
    lines += [
        "Dataset iterator time breakdown:",
        f"* Total time: {_secs(total)}",
        f"* Waiting for blocks: {_secs(execution.waited)}",
        f"* In the program that took them: {_secs(max(0.0, total - execution.waited))}",
    ]
    return "\n".join(lines) + "\n"


def _values_lines(number: int, operator: Values) -> list[str]:
    return [
        f"Operator {number} {operator.name}: {operator.blocks} blocks of {operator.rows} rows were there already",
        "",
    ]


def _operator_lines(number: int, each: OperatorStats) -> list[str]:
    wall = (each.ended or 0) - (each.begun or 0)
    lines = [
        f"Operator {number} {each.name}: {each.tasks} tasks executed, {each.blocks} blocks produced in {_secs(wall)}",
        f"* Rows: {each.rows}, bytes: {each.bytes}",
        f"* Time in user code: {_secs(each.user_seconds)}, in the framework: {_secs(each.framework_seconds)}",
        (
            f"* Waiting for input: {_secs(each.input_seconds)}, for output to be taken: {_secs(each.output_seconds)}, "
            f"for a processor: {_secs(each.processor_seconds)}"
        ),
        f"* Processes: {len(each.processes)}, largest memory of one: {each.largest_memory // 2**20} MiB",
    ]
    if each.failed_rows:
        lines.append(f"* Rows left out because user code failed: {each.failed_rows}")
    if each.errored_blocks:
        lines.append(f"* Blocks left out because their tasks failed: {each.errored_blocks}")
    return [*lines, ""]


def _secs(amount: float) -> str:
    return f"{amount * 1000:.2f}ms" if amount < 1 else f"{amount:.2f}s"
