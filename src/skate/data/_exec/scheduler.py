"""Decides what a running plan does next: which task to start, which to hold back, when to stop.

Events come in as calls, instructions go out as a list: `Scheduler` starts nothing itself, so that the same decisions drive
worker processes and a plan that runs in this process. It has no clock.

A task is started where the most downstream operator has something to do, as long as there is a processor for it and
the blocks that exist because of the plan stay within the budget. Whoever makes blocks that nobody has taken is held
back too, block by block; it lends its processor to the tasks further down, which make room. The further upstream, the
smaller a share of the budget may be in use, so that what has been read does not take the room of what becomes of it. If
nothing runs and nothing is ready, one task goes on whatever the budget says: a plan always gets on, with a single huge
block as well.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from skate.data._exec.actor_pool import ActorPool, PoolActor
from skate.data._exec.items import Item
from skate.data._exec.limits import Limits, Process, shares
from skate.data._exec.operators import Operator
from skate.data._exec.streaming_operators import Union
from skate.data._exec.tasks import Task


@dataclass(frozen=True, slots=True)
class Start:
    """Start a task, and read what it makes."""

    task: Task


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading what a task makes."""

    task: Task


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a task that nobody needs."""

    task: Task


@dataclass(frozen=True, slots=True)
class StartActor:
    """Start an actor of a pool."""

    pool: ActorPool
    member: PoolActor


@dataclass(frozen=True, slots=True)
class StopActor:
    """End an actor that has nothing to do any more."""

    member: PoolActor


Instruction = Start | Resume | Cancel | StartActor | StopActor


class OperatorStatus(enum.Enum):
    """What an operator does, or waits for."""

    WORKS = enum.auto()
    WAITS_FOR_INPUT = enum.auto()
    WAITS_FOR_OUTPUT = enum.auto()  # it could make more, and nobody takes what there is
    WAITS_FOR_PROCESSOR = enum.auto()
    FINISHED = enum.auto()


class Scheduler:
    """A plan that runs.

    Attributes:
        on_change: Called when something has happened, and everything that follows from it is decided.
    """

    def __init__(self, root: Operator, limits: Limits, block_size: int = 0) -> None:
        self.root = root
        self.limits = limits
        self.operators = list(_downstream_first(root))
        self.block_size = block_size  # of a usual block: what is guessed before a task of its kind has ended
        self.in_use = 0  # bytes of the items that the consumer has taken and not let go of
        self.memory_of: dict[Process, int] = {}  # bytes that each worker process has for itself
        self._shares = shares(root)
        self._closed_ports: set[tuple[int, int]] = set()
        self._stopped: set[Operator] = set()
        self.on_change: Callable[[], None] | None = None

    # ------------------------------------------------------------ events

    def begin(self) -> list[Instruction]:
        """Return what to do first."""
        return self._advance()

    def made(self, task: Task, item: Item) -> list[Instruction]:
        """A task has made an item. Afterwards, `task.paused` tells whether to wait with the next."""
        if task.operator in self._stopped:
            return []
        task.operator.made(task, item)
        instructions: list[Instruction] = []
        self._move(instructions)
        task.paused = not task.ended and not self._may_continue(task)
        # Whoever asks has not stopped yet, and need not be told to go on.
        return instructions + [each for each in self._advance() if each != Resume(task)]

    def update_memory(self, process: Process, memory: int) -> None:
        """Note the memory of a worker, as it was a moment ago; none if the worker is gone."""
        if memory:
            self.memory_of[process] = memory
        else:
            self.memory_of.pop(process, None)

    def ended(self, task: Task) -> list[Instruction]:
        """A task has made its last item."""
        if task.operator in self._stopped:
            return []
        task.operator.ended(task)
        return self._advance()

    def actor_started(self, member: PoolActor, handle: Any) -> list[Instruction]:
        """An actor of a pool can take tasks."""
        member.handle = handle
        return self._advance()

    def take(self) -> tuple[Item | None, list[Instruction]]:
        """Hand the next item to the consumer, who is done with the one before; None if there is none now."""
        self.in_use = 0
        instructions = [] if self.root.ready else self._advance()
        if not self.root.ready:
            return None, instructions
        item = self.root.take()
        self.in_use = item.bytes
        return item, instructions + self._advance()

    def stop(self) -> list[Instruction]:
        """The consumer wants nothing more."""
        cancelled = [Cancel(task) for operator in self.operators for task in self._stop(operator)]
        return [*cancelled, *self._stop_pools()]

    # ------------------------------------------------------------ what is so

    @property
    def finished(self) -> bool:
        """Whether all items have been handed over."""
        return self.root.finished and not self.root.ready

    @property
    def used(self) -> int:
        """Bytes of the blocks that exist because of the plan, without those that wait to be gathered."""
        return self.in_use + sum(operator.held + operator.ready_bytes for operator in self.operators)

    @property
    def tasks_left(self) -> int:
        """How many tasks have not been started, as far as that is known."""
        return sum(operator.waiting for operator in self.operators)

    @property
    def short_of_memory(self) -> bool:
        """Whether blocks and workers together have more memory than they may."""
        most = self.limits.memory
        return most is not None and self.used + sum(self.memory_of.values()) > most

    def status_of(self, operator: Operator) -> OperatorStatus:
        """Return what an operator does now, or waits for."""
        if operator.finished or operator in self._stopped:
            return OperatorStatus.FINISHED
        if _is_active(operator):
            return OperatorStatus.WORKS
        if not any(task.paused for task in operator.running) and not operator.has_task():
            return OperatorStatus.WAITS_FOR_INPUT
        has_processor = self._has_processor(operator)
        return OperatorStatus.WAITS_FOR_OUTPUT if has_processor else OperatorStatus.WAITS_FOR_PROCESSOR

    def _is_active(self) -> bool:
        """Tell whether something is on its way to the consumer."""
        return bool(self.root.ready) or any(map(_is_active, self.operators))

    # ------------------------------------------------------------ deciding

    def _advance(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        self._move(instructions)
        self._scale_pools(instructions)
        for operator in self.operators:
            instructions.extend(self._resumed(operator))
            while self._may_start(operator):
                instructions.append(Start(self._begun(operator)))
        if not self._is_active():
            instructions.extend(self._force_progress())
        if self.on_change is not None:
            self.on_change()
        return instructions

    def _resumed(self, operator: Operator) -> Iterator[Instruction]:
        for task in operator.running:
            if task.paused and self._has_processor(operator) and self._may_continue(task):
                task.paused = False
                yield Resume(task)

    def _begun(self, operator: Operator) -> Task:
        """Return a new task of this operator; it says whether the processor is one that another task holds."""
        free = self.limits.cpus - self._cpus_taken()
        task = operator.next_task()
        # One that asks for more than there is at all is left to the engine, which says so.
        task.borrows = operator.pool is None and free < operator.cpus <= self.limits.cpus
        return task

    def _force_progress(self) -> list[Instruction]:
        """Let one task go on, whatever the limits say: the most downstream one, which makes room soonest."""
        for operator in self.operators:
            for task in operator.running:
                if task.paused:
                    task.paused = False
                    return [Resume(task)]
            if operator not in self._stopped and operator.may_start():
                return [Start(self._begun(operator))]
        return []

    def _move(self, instructions: list[Instruction]) -> None:
        """Pass items on from operator to operator, upstream first."""
        for operator in reversed(self.operators):
            if operator.finished and operator not in self._stopped:
                self._stop_inputs(operator, instructions)
                continue
            for port, input in enumerate(operator.inputs):
                while input.ready and not operator.finished:
                    operator.receive(port, input.take())
                if input.finished and not input.ready and (id(operator), port) not in self._closed_ports:
                    self._closed_ports.add((id(operator), port))
                    if not operator.finished:
                        operator.close(port)
            if operator.finished:
                self._stop_inputs(operator, instructions)

    def _stop_inputs(self, operator: Operator, instructions: list[Instruction]) -> None:
        for input in operator.inputs:
            if input not in self._stopped and not (input.finished and not input.ready):
                instructions.extend(Cancel(task) for task in self._stop(input))
                self._stop_inputs(input, instructions)
        if operator.finished and operator.pool is not None:
            instructions.extend(self._stop_pool(operator.pool))

    def _stop(self, operator: Operator) -> list[Task]:
        self._stopped.add(operator)
        tasks = [task for task in operator.stop() if not task.ended]
        operator.ready.clear()
        operator.ready_bytes = 0
        return tasks

    def _scale_pools(self, instructions: list[Instruction]) -> None:
        """Start the actors that are missing, and let those go that nobody needs: others may want what they hold."""
        for operator in self.operators:
            pool = operator.pool
            if pool is None or operator.finished or operator in self._stopped:
                continue
            if operator.all_tasks_started:
                instructions.extend(map(StopActor, pool.unneeded(all_tasks_started=True)))
                continue
            instructions.extend(map(StopActor, pool.unneeded(all_tasks_started=False)))
            for _ in range(pool.wants_more(operator.waiting)):
                member = PoolActor()
                pool.members.append(member)
                instructions.append(StartActor(pool, member))

    def _stop_pools(self) -> list[Instruction]:
        return [
            stop
            for operator in self.operators
            if operator.pool is not None
            for stop in self._stop_pool(operator.pool)
        ]

    def _stop_pool(self, pool: ActorPool) -> list[Instruction]:
        gone, pool.members = pool.members, []
        return [StopActor(member) for member in gone]

    def _may_start(self, operator: Operator) -> bool:
        """Tell whether one more task of this operator should be started now."""
        if operator in self._stopped or not operator.may_start() or not self._has_processor(operator):
            return False
        if self.short_of_memory:
            return False
        if operator.is_barrier or self._feeds_barrier(operator):
            return True
        return self.used + self._expected(operator) <= self._room(operator)

    def _room(self, operator: Operator) -> int:
        """Return the bytes of blocks that may exist when this operator makes another."""
        return int(self.limits.bytes * self._shares[operator])

    def _expected(self, operator: Operator) -> int:
        """Bytes that one more task of this operator would add, given that others of it have just begun.

        A task that makes more than two blocks is held back before it makes the third.
        """
        each = min(operator.expected, 2 * self.block_size) if operator.tasks_ended else self.block_size
        return each * (1 + sum(not task.ended for task in operator.running))

    def _feeds_barrier(self, operator: Operator) -> bool:
        """Tell whether what the operator makes is gathered: it is not held back, as it will be spilled if need be."""
        return any(other.is_barrier and operator in other.inputs for other in self.operators)

    def _has_processor(self, operator: Operator) -> bool:
        """Tell whether a task of this operator could run now, and not only wait for a processor."""
        if operator.pool is not None:
            return True
        in_use = sum(
            other.cpus * sum(task.is_active for task in other.running)
            for other in self.operators
            if other.pool is None
        )
        return operator.cpus <= self.limits.cpus - in_use

    def _cpus_taken(self) -> float:
        """Return how many CPUs tasks have been given, also those that are held back."""
        return sum(
            operator.cpus * sum(not task.ended and not task.borrows for task in operator.running)
            for operator in self.operators
            if operator.pool is None
        )

    def _may_continue(self, task: Task) -> bool:
        """Tell whether a running task may make its next block."""
        operator = task.operator
        if operator.is_barrier or self._feeds_barrier(operator):
            return True
        if self.used <= self._room(operator) and not self.short_of_memory:
            return True
        # Over budget: only what somebody waits for, which is the next block in order of an operator that has none.
        is_next = not getattr(operator, "in_order", False) or operator.running[0] is task
        return is_next and not operator.ready and self._is_waited_for(operator)

    def _is_waited_for(self, operator: Operator) -> bool:
        """Tell whether everything downstream is idle for want of what this operator makes."""
        for other in self.operators:
            if other is operator:
                return True
            if other.ready or other.has_task() or _is_active(other):
                return False
            if isinstance(other, Union) and operator in other.inputs:
                return other.inputs[other.current] is operator
        return True


def _is_active(operator: Operator) -> bool:
    """Tell whether an operator has a task that is not held back, or will as soon as its first actor is there."""
    if operator.pool is not None and operator.waiting and operator.pool.is_opening():
        return True
    return any(task.is_active for task in operator.running)


def _downstream_first(root: Operator) -> Iterator[Operator]:
    waiting = [root]
    while waiting:
        operator = waiting.pop(0)
        yield operator
        waiting.extend(operator.inputs)
