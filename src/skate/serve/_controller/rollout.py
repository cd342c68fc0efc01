"""How many replicas to start and which to stop next. No I/O, no clock: a function of what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Decision", "Phase", "Seen", "decide"]


class Phase(Enum):
    """Where a replica is in its life."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"


@dataclass(frozen=True)
class Seen:
    """A replica as the rollout sees it."""

    id: str
    version: str
    phase: Phase
    load: int = 0


@dataclass(frozen=True)
class Decision:
    """What to do now."""

    start: int = 0
    stop: tuple[str, ...] = ()


def decide(
    seen: Sequence[Seen],
    *,
    target: int,
    version: str,
    room: int,
    batch: int = 1,
) -> Decision:
    """Return the next step towards `target` replicas of `version`.

    Old replicas serve until as many new ones run. So there are more replicas than the target for a while, as far as the
    machine has room for that. Where it has none, an old replica has to go first, as long as that leaves one to serve; a
    deployment of one replica, on a full machine, cannot be replaced without a gap.

    Args:
        seen: All replicas, those that are stopping too.
        target: How many there should be.
        version: Which they should be of.
        room: For how many further replicas there are free resources.
        batch: How many may be replaced at a time.
    """
    new = [each for each in seen if each.version == version and each.phase is not Phase.STOPPING]
    old = [each for each in seen if each.version != version and each.phase is not Phase.STOPPING]
    running = sum(each.phase is Phase.RUNNING for each in new)
    if len(new) > target:
        return Decision(stop=tuple(each.id for each in _expendable(new)[: len(new) - target]))
    missing = target - len(new)
    if not old:
        return Decision(start=missing)
    # An old replica that never came up serves nobody.
    useless = [each.id for each in old if each.phase is Phase.STARTING]
    serving = [each for each in old if each.phase is Phase.RUNNING]
    excess = max(0, len(serving) + running - target)
    stop = [*useless, *(each.id for each in _expendable(serving)[:excess])]
    may_start = min(missing, max(0, batch - (len(new) - running)))
    start = min(may_start, room)
    is_leaving = any(each.phase is Phase.STOPPING for each in seen)
    if may_start and not start and not stop and running == len(new) and not is_leaving:
        # No room beside the old ones: let some of them go first, and leave one to serve if there is more than one.
        spare = len(serving) - (1 if len(serving) > 1 else 0)
        stop += [each.id for each in _expendable(serving)[: min(batch, spare)]]
    return Decision(start=start, stop=tuple(stop))


def _expendable(replicas: Sequence[Seen]) -> list[Seen]:
    """Return replicas in the order in which they should go: those that are not up first, then the least busy."""
    return sorted(replicas, key=lambda each: (each.phase is Phase.RUNNING, each.load))
