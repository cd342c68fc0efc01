"""What a running plan may use: processors, blocks, memory; and how its operators share the room for blocks."""

from __future__ import annotations

from dataclasses import dataclass

from skate.data._exec.operators import Operator, Tasks

Process = tuple[str, int]  # the name of a machine, and the id of a process there


@dataclass(slots=True)
class Limits:
    """What a plan may use.

    Attributes:
        cpus: Tasks that run at a time, by the CPUs they ask for.
        bytes: Blocks that exist because of the plan.
        memory: Blocks and the workers' own memory together; None if there is no limit.
    """

    cpus: float
    bytes: int
    memory: int | None = None


def shares(root: Operator) -> dict[Operator, float]:
    """Return the share of the room for blocks that may be in use when an operator makes another one.

    What is last may use all of it, what reads may use half, and what is between them something between. So there is
    always room for what becomes of the blocks that have been read.
    """
    depths: dict[Operator, int] = {}
    waiting = [(root, 0)]
    while waiting:
        operator, before = waiting.pop()
        depths[operator] = max(before, depths.get(operator, 0))
        # Those that only pass items on make no blocks.
        after = before + isinstance(operator, Tasks)
        waiting.extend((input, after) for input in operator.inputs)
    deepest = max((depth for operator, depth in depths.items() if isinstance(operator, Tasks)), default=0)
    return {operator: 1 - 0.5 * min(depth, deepest) / max(deepest, 1) for operator, depth in depths.items()}
