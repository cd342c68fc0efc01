"""Numbers of replicas while only a part of all capacity is wanted."""

from __future__ import annotations

import math


def apply_target_capacity(replicas: int, target_capacity: float | None) -> int:
    """Return how many of `replicas` a capacity in percent leaves: at least one, unless it is zero.

    >>> adjusted(10, 25.0), adjusted(3, 1.0), adjusted(3, 0.0), adjusted(3, None)
    (3, 1, 0, 3)
    """
    if target_capacity is None or target_capacity == 100:
        return replicas
    if not target_capacity or not replicas:
        return 0
    return max(math.floor(replicas * target_capacity / 100 + 0.5), 1)


def is_ramping_up(before: float | None, after: float | None, was_ramping_up: bool) -> bool:
    """Return whether a capacity that changes step by step is on its way up to all of it.

    No capacity stands for all of it: setting one is a step down, and taking it away ends the way.

    >>> is_growing(20, 50, False), is_growing(50, 20, True), is_growing(None, 50, True), is_growing(50, 50, True)
    (True, False, False, True)
    """
    if before == after:
        return was_ramping_up
    return before is not None and after is not None and before < after


def round_up_to_gangs(replicas: int, gang_size: int) -> int:
    """Return as many replicas as fill whole gangs, rounded up.

    >>> in_gangs(5, 4), in_gangs(0, 4)
    (8, 0)
    """
    return -(-replicas // gang_size) * gang_size
