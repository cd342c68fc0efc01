"""Adjustments of replica counts to a target capacity and to gangs."""

from __future__ import annotations

import math


def apply_target_capacity(replicas: int, target_capacity: float | None) -> int:
    """Return the number of replicas at a target capacity in percent: at least one, unless the capacity is zero.

    >>> apply_target_capacity(10, 25.0), apply_target_capacity(3, 1.0), apply_target_capacity(3, 0.0)
    (3, 1, 0)
    >>> apply_target_capacity(3, None)
    3
    """
    if target_capacity is None or target_capacity == 100:
        return replicas
    if not target_capacity or not replicas:
        return 0
    return max(math.floor(replicas * target_capacity / 100 + 0.5), 1)


def is_ramping_up(before: float | None, after: float | None, was_ramping_up: bool) -> bool:
    """Return whether a target capacity that changes in steps is increasing.

    None means full capacity: setting a target capacity is a step down, and removing it ends the ramp.

    >>> is_ramping_up(20, 50, False), is_ramping_up(50, 20, True), is_ramping_up(None, 50, True)
    (True, False, False)
    >>> is_ramping_up(50, 50, True)
    True
    """
    if before == after:
        return was_ramping_up
    return before is not None and after is not None and before < after


def round_up_to_gangs(replicas: int, gang_size: int) -> int:
    """Return the number of replicas, rounded up to whole gangs.

    >>> round_up_to_gangs(5, 4), round_up_to_gangs(0, 4)
    (8, 0)
    """
    return -(-replicas // gang_size) * gang_size
