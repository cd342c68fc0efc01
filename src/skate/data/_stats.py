"""What a run has done, as text."""

from __future__ import annotations

import time

from skate.data._exec.operator_stats import OperatorStats
from skate.data._exec.operators import Values
from skate.data._execution import Execution


def stats_text(run: Execution) -> str:
    """Return a paragraph for each step of a run, and one for all of it."""
    lines: list[str] = []
    shown = [(step, each) for step, each in run.stats.items() if each.tasks or isinstance(step, Values)]
    for number, (step, each) in enumerate(shown, start=1):
        lines.extend(_values(number, step) if isinstance(step, Values) else _operator(number, each))
    end = run.ended if run.ended is not None else time.perf_counter()
    total = end - (run.begun or end)
    lines += [
        "Dataset iterator time breakdown:",
        f"* Total time: {_s(total)}",
        f"* Waiting for blocks: {_s(run.waited)}",
        f"* In the program that took them: {_s(max(0.0, total - run.waited))}",
    ]
    return "\n".join(lines) + "\n"


def _values(number: int, step: Values) -> list[str]:
    return [f"Operator {number} {step.name}: {step.blocks} blocks of {step.rows} rows were there already", ""]


def _operator(number: int, each: OperatorStats) -> list[str]:
    wall = (each.ended or 0) - (each.begun or 0)
    lines = [
        f"Operator {number} {each.name}: {each.tasks} tasks executed, {each.blocks} blocks produced in {_s(wall)}",
        f"* Rows: {each.rows}, bytes: {each.bytes}",
        f"* Time in user code: {_s(each.user_seconds)}, in the framework: {_s(each.framework_seconds)}",
        (
            f"* Waiting for input: {_s(each.input_seconds)}, for output to be taken: {_s(each.output_seconds)}, "
            f"for a processor: {_s(each.processor_seconds)}"
        ),
        f"* Processes: {len(each.processes)}, largest memory of one: {each.largest_memory // 2**20} MiB",
    ]
    if each.failed_rows:
        lines.append(f"* Rows left out because user code failed: {each.failed_rows}")
    if each.errored_blocks:
        lines.append(f"* Blocks left out because their tasks failed: {each.errored_blocks}")
    return [*lines, ""]


def _s(amount: float) -> str:
    return f"{amount * 1000:.2f}ms" if amount < 1 else f"{amount:.2f}s"
