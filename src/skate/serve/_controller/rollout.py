"""How many replicas to start and which to stop next. No I/O, no clock: a function of what is seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    gang: str = ""  # those of one gang come and go together


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
    gang_size: int = 1,
) -> Decision:
    """Return the next step towards `target` replicas of `version`.

    Old replicas serve until as many new ones run. So there are more replicas than the target for a while, as far as the
    machine has room for that. Where it has none, an old replica has to go first, as long as that leaves one to serve; a
    deployment of one replica, on a full machine, cannot be replaced without a gap. For gangs, all that holds of whole
    gangs.

    Args:
        seen: All replicas, those that are stopping too.
        target: How many there should be: a multiple of `gang_size`.
        version: Which they should be of.
        room: For how many further replicas there are free resources.
        batch: How many may be replaced at a time; a gang at least.
        gang_size: How many replicas start together.
    """
    batch = max(batch, gang_size)
    units = _units(seen)
    staying = [unit for unit in units if unit.phase is not Phase.STOPPING]
    new = [unit for unit in staying if unit.version == version]
    old = [unit for unit in staying if unit.version != version]
    torn = [id for unit in units if unit.phase is Phase.STOPPING for id in unit.staying]
    have, running = _count(new), _count(unit for unit in new if unit.phase is Phase.RUNNING)
    if have > target:
        return Decision(stop=(*torn, *_fitting(_expendable(new), have - target)))
    missing = target - have
    if not old:
        return Decision(start=_whole(missing, gang_size), stop=tuple(torn))
    # An old replica that never came up serves nobody.
    useless = [id for unit in old if unit.phase is Phase.STARTING for id in unit.ids]
    serving = [unit for unit in old if unit.phase is Phase.RUNNING]
    excess = max(0, _count(serving) + running - target)
    stop = [*torn, *useless, *_fitting(_expendable(serving), excess)]
    lacking = target - have - _count(serving)  # even if nothing were replaced
    may_start = _whole(min(missing, max(0, batch - (have - running), lacking)), gang_size)
    start = _whole(min(may_start, room), gang_size)
    is_leaving = any(each.phase is Phase.STOPPING for each in seen)
    if may_start and not start and not stop and running == have and not is_leaving:
        # No room beside the old ones: let some of them go first, and leave one to serve if there is more than one.
        first = _expendable(serving)
        spare = first[:-1] if len(first) > 1 else first
        stop += _fitting(spare, max(batch, spare[0].size) if spare else 0)
    return Decision(start=start, stop=tuple(stop))


@dataclass(frozen=True)
class _Unit:
    """What comes and goes as one: a replica, or a gang. It runs if all of it does, and stops if any of it does."""

    members: tuple[Seen, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(each.id for each in self.members)

    @property
    def staying(self) -> tuple[str, ...]:
        return tuple(each.id for each in self.members if each.phase is not Phase.STOPPING)

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def version(self) -> str:
        return self.members[0].version

    @property
    def phase(self) -> Phase:
        phases = {each.phase for each in self.members}
        if Phase.STOPPING in phases:
            return Phase.STOPPING
        return Phase.STARTING if Phase.STARTING in phases else Phase.RUNNING

    @property
    def load(self) -> int:
        return sum(each.load for each in self.members)


def _units(seen: Sequence[Seen]) -> list[_Unit]:
    gangs: dict[str, list[Seen]] = {}
    for each in seen:
        gangs.setdefault(f"gang {each.gang}" if each.gang else each.id, []).append(each)
    return [_Unit(tuple(members)) for members in gangs.values()]


def _count(units: Iterable[_Unit]) -> int:
    return sum(unit.size for unit in units)


def _whole(replicas: int, gang_size: int) -> int:
    return replicas - replicas % gang_size


def _fitting(units: Iterable[_Unit], most: int) -> list[str]:
    """Return the replicas of the first units that together are no more than `most`."""
    chosen: list[str] = []
    for unit in units:
        if len(chosen) + unit.size <= most:
            chosen += unit.ids
    return chosen


def _expendable(units: Sequence[_Unit]) -> list[_Unit]:
    """Return units in the order in which they should go: those that are not up first, then the least busy."""
    return sorted(units, key=lambda unit: (unit.phase is Phase.RUNNING, unit.load))
