"""What a run has done, as text."""

from __future__ import annotations

import time

from skate.data._exec.execution import Execution
from skate.data._exec.stats import OperatorStats


def stats_text(run: Execution) -> str:
    """Return a paragraph for each step of a run, and one for all of it."""
    lines: list[str] = []
    for number, each in enumerate(each for each in run.stats.values() if each.tasks):
        lines.extend(_operator(number + 1, each))
    end = run.ended if run.ended is not None else time.perf_counter()
    total = end - (run.begun or end)
    lines += [
        "Dataset iterator time breakdown:",
        f"* Total time: {_s(total)}",
        f"* Waiting for blocks: {_s(run.waited)}",
        f"* In the program that took them: {_s(max(0.0, total - run.waited))}",
    ]
    return "\n".join(lines) + "\n"


def _operator(number: int, each: OperatorStats) -> list[str]:
    wall = (each.ended or 0) - (each.begun or 0)
    lines = [
        f"Operator {number} {each.name}: {each.tasks} tasks executed, {each.blocks} blocks produced in {_s(wall)}",
        f"* Rows: {each.rows}, bytes: {each.bytes}",
        f"* Time in user code: {_s(each.user_seconds)}, in the framework: {_s(each.framework_seconds)}",
        f"* Processes: {len(each.processes)}, largest memory of one: {each.largest_memory // 2**20} MiB",
    ]
    if each.failed_rows:
        lines.append(f"* Rows left out because user code failed: {each.failed_rows}")
    if each.errored_blocks:
        lines.append(f"* Blocks left out because their tasks failed: {each.errored_blocks}")
    return [*lines, ""]


def _s(amount: float) -> str:
    return f"{amount * 1000:.2f}ms" if amount < 1 else f"{amount:.2f}s"
