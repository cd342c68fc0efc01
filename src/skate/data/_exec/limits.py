"""The limits of a running plan: processors, bytes of blocks, memory; and each operator's share of the bytes."""

from __future__ import annotations

from dataclasses import dataclass

from skate.data._exec.operators import Operator, Tasks

Process = tuple[str, int]  # host name and process id


@dataclass(slots=True)
class Limits:
    """The resources that a plan may use.

    Attributes:
        cpus: Sum of the CPUs of all running tasks.
        bytes: Bytes of the blocks that the plan creates.
        memory: Bytes of these blocks and of the workers' private memory together; None is no limit.
    """

    cpus: float
    bytes: int
    memory: int | None = None


def shares(root: Operator) -> dict[Operator, float]:
    """Return, for each operator, the share of `Limits.bytes` up to which it may create blocks.

    The last operator may use all bytes, a source half of them, and operators in between a share in between. So
    operators downstream always have room for the results of blocks that have been read.
    """
    depths: dict[Operator, int] = {}
    waiting = [(root, 0)]
    while waiting:
        operator, before = waiting.pop()
        depths[operator] = max(before, depths.get(operator, 0))
        # Operators without tasks create no blocks.
        after = before + isinstance(operator, Tasks)
        waiting.extend((input, after) for input in operator.inputs)
    deepest = max((depth for operator, depth in depths.items() if isinstance(operator, Tasks)), default=0)
    return {operator: 1 - 0.5 * min(depth, deepest) / max(deepest, 1) for operator, depth in depths.items()}
