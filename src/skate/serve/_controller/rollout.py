"""Decides how many replicas to start and which to stop next: a pure function of the replicas' states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Decision", "Phase", "ReplicaView", "decide"]


class Phase(Enum):
    """The phase of a replica's life."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"


@dataclass(frozen=True)
class ReplicaView:
    """The state of a replica that a rollout decision depends on."""

    id: str
    version: str
    phase: Phase
    load: int = 0
    gang: str = ""  # replicas of one gang start and stop together


@dataclass(frozen=True)
class Decision:
    """The replicas to start and to stop now."""

    start: int = 0
    stop: tuple[str, ...] = ()


def decide(
    replicas: Sequence[ReplicaView],
    *,
    target: int,
    version: str,
    room: int,
    batch: int = 1,
    gang_size: int = 1,
) -> Decision:
    """Return the next step towards `target` replicas of `version`.

    Old replicas serve until as many new ones run, so a deployment temporarily has more replicas than its target, as far
    as free resources allow. Without free resources, an old replica stops first; if there are several, one of them
    keeps serving. A deployment with a single replica on a full machine therefore has a gap during an update. For
    gangs, all of this applies to whole gangs.

    Args:
        replicas: All replicas, including stopping ones.
        target: The desired number of replicas: a multiple of `gang_size`.
        version: The desired version.
        room: The number of further replicas that free resources allow.
        batch: The number of replicas to replace at a time; at least one gang.
        gang_size: The number of replicas that start together.
    """
    batch = max(batch, gang_size)
    units = _units(replicas)
    staying = [unit for unit in units if unit.phase is not Phase.STOPPING]
    new = [unit for unit in staying if unit.version == version]
    old = [unit for unit in staying if unit.version != version]
    orphaned_members = [id for unit in units if unit.phase is Phase.STOPPING for id in unit.staying]
    have, running = _count(new), _count(unit for unit in new if unit.phase is Phase.RUNNING)
    if have > target:
        return Decision(stop=(*orphaned_members, *_take_up_to(_by_expendability(new), have - target)))
    missing = target - have
    if not old:
        return Decision(start=_round_down_to_gangs(missing, gang_size), stop=tuple(orphaned_members))
    # Old replicas that never started serve no requests.
    never_started = [id for unit in old if unit.phase is Phase.STARTING for id in unit.ids]
    serving = [unit for unit in old if unit.phase is Phase.RUNNING]
    excess = max(0, _count(serving) + running - target)
    stop = [*orphaned_members, *never_started, *_take_up_to(_by_expendability(serving), excess)]
    lacking = target - have - _count(serving)  # to reach the target, even without replacing any replica
    may_start = _round_down_to_gangs(min(missing, max(0, batch - (have - running), lacking)), gang_size)
    start = _round_down_to_gangs(min(may_start, room), gang_size)
    any_stopping = any(each.phase is Phase.STOPPING for each in replicas)
    if may_start and not start and not stop and running == have and not any_stopping:
        # No free resources: stop some old replicas first, and keep one serving if there are several.
        first = _by_expendability(serving)
        spare = first[:-1] if len(first) > 1 else first
        stop += _take_up_to(spare, max(batch, spare[0].size) if spare else 0)
    return Decision(start=start, stop=tuple(stop))


@dataclass(frozen=True)
class _Unit:
    """Replicas that start and stop as one: a single replica or a gang.

    It runs if all members run, and stops if any member stops.
    """

    members: tuple[ReplicaView, ...]

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


def _units(replicas: Sequence[ReplicaView]) -> list[_Unit]:
    gangs: dict[str, list[ReplicaView]] = {}
    for each in replicas:
        gangs.setdefault(f"gang {each.gang}" if each.gang else each.id, []).append(each)
    return [_Unit(tuple(members)) for members in gangs.values()]


def _count(units: Iterable[_Unit]) -> int:
    return sum(unit.size for unit in units)


def _round_down_to_gangs(replicas: int, gang_size: int) -> int:
    return replicas - replicas % gang_size


def _take_up_to(units: Iterable[_Unit], most: int) -> list[str]:
    """Return the replicas of the first units that fit into the limit."""
    chosen: list[str] = []
    for unit in units:
        if len(chosen) + unit.size <= most:
            chosen += unit.ids
    return chosen


def _by_expendability(units: Sequence[_Unit]) -> list[_Unit]:
    """Return units in the order in which to stop them: those that do not run first, then the least busy."""
    return sorted(units, key=lambda unit: (unit.phase is Phase.RUNNING, unit.load))
