"""Schedules the tasks of a running plan: which task to start, which to pause, when to stop.

Events arrive as method calls, and each call returns a list of instructions. The scheduler starts nothing itself and has
no clock, so the same decisions drive worker processes, threads and plans that run in this process.

The scheduler starts tasks of the most downstream operator first, as long as a processor is free and the blocks of the
plan stay within the limit. It pauses a task whose blocks are not consumed; a paused task lends its processor to tasks
downstream, which free memory. Operators further upstream may use a smaller share of the limit, which keeps room for the
results of blocks that have been read. If nothing runs and nothing is ready, one task continues regardless of the limit:
a plan always makes progress, even with a single huge block.
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
    """Start a task, and read its blocks."""

    task: Task


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue reading the blocks of a paused task."""

    task: Task


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a task whose results are not needed."""

    task: Task


@dataclass(frozen=True, slots=True)
class StartActor:
    """Start an actor of a pool."""

    pool: ActorPool
    member: PoolActor


@dataclass(frozen=True, slots=True)
class StopActor:
    """Stop an actor that is no longer needed."""

    member: PoolActor


Instruction = Start | Resume | Cancel | StartActor | StopActor


class OperatorStatus(enum.Enum):
    """The status of an operator: active, waiting, or finished."""

    ACTIVE = enum.auto()
    WAITING_FOR_INPUT = enum.auto()
    WAITING_FOR_OUTPUT = enum.auto()  # its output must be consumed before it may create more blocks
    WAITING_FOR_PROCESSOR = enum.auto()
    FINISHED = enum.auto()


class Scheduler:
    """The state of a running plan.

    Args:
        root: The last operator of the plan.
        limits: The resources that the plan may use.
        block_size: Expected bytes of the first blocks of an operator, until one of its tasks has ended.

    Attributes:
        on_change: Called after each event, when all decisions that follow from it have been made.
    """

    def __init__(self, root: Operator, limits: Limits, block_size: int = 0) -> None:
        self.root = root
        self.limits = limits
        self.operators = list(_downstream_first(root))
        self.block_size = block_size
        self.in_use = 0  # bytes of the item that the consumer works on
        self.memory_of: dict[Process, int] = {}  # private memory of each worker process, in bytes
        self._shares = shares(root)
        self._closed_ports: set[tuple[int, int]] = set()
        self._stopped: set[Operator] = set()
        self.on_change: Callable[[], None] | None = None

    # ------------------------------------------------------------ events

    def begin(self) -> list[Instruction]:
        """Return the first instructions."""
        return self._advance()

    def made(self, task: Task, item: Item) -> list[Instruction]:
        """Handle an item that a task has created; afterwards, `task.paused` says whether the task has to wait."""
        if task.operator in self._stopped:
            return []
        task.operator.made(task, item)
        instructions: list[Instruction] = []
        self._move(instructions)
        goes_on = not task.ended and task.operator not in self._stopped  # a limit may have all its rows now
        task.paused = goes_on and not self._may_continue(task)
        # The caller has not paused the task yet, so it needs no instruction to resume it.
        return instructions + [each for each in self._advance() if each != Resume(task)]

    def update_memory(self, process: Process, memory: int) -> None:
        """Store the private memory of a worker in bytes; 0 if the worker has ended."""
        if memory:
            self.memory_of[process] = memory
        else:
            self.memory_of.pop(process, None)

    def ended(self, task: Task) -> list[Instruction]:
        """Handle the end of a task."""
        if task.operator in self._stopped:
            return []
        task.operator.ended(task)
        return self._advance()

    def actor_started(self, member: PoolActor, handle: Any) -> list[Instruction]:
        """Handle the start of a pool's actor."""
        member.handle = handle
        return self._advance()

    def resize(self, limits: Limits) -> list[Instruction]:
        """Replace the limits; return the instructions that the new ones allow."""
        self.limits = limits
        return self._advance()

    def take(self) -> tuple[Item | None, list[Instruction]]:
        """Return the next item for the consumer, or None if none is ready; the previous item counts as consumed."""
        self.in_use = 0
        instructions = [] if self.root.ready else self._advance()
        if not self.root.ready:
            return None, instructions
        item = self.root.take()
        self.in_use = item.bytes
        return item, instructions + self._advance()

    def stop(self) -> list[Instruction]:
        """Stop the plan."""
        cancelled = [Cancel(task) for operator in self.operators for task in self._stop(operator)]
        return [*cancelled, *self._stop_pools()]

    # ------------------------------------------------------------ state

    @property
    def finished(self) -> bool:
        """Whether the consumer has taken all items."""
        return self.root.finished and not self.root.ready

    @property
    def used(self) -> int:
        """Bytes of the blocks that the plan has created, without the inputs of barriers."""
        return self.in_use + sum(operator.held + operator.ready_bytes for operator in self.operators)

    @property
    def tasks_left(self) -> int:
        """Number of known tasks that have not started."""
        return sum(operator.waiting for operator in self.operators)

    @property
    def short_of_memory(self) -> bool:
        """Whether blocks and workers together exceed the memory limit."""
        most = self.limits.memory
        return most is not None and self.used + sum(self.memory_of.values()) > most

    def status_of(self, operator: Operator) -> OperatorStatus:
        """Return the current status of an operator."""
        if operator.finished or operator in self._stopped:
            return OperatorStatus.FINISHED
        if _is_active(operator):
            return OperatorStatus.ACTIVE
        if not any(task.paused for task in operator.running) and not operator.has_task():
            return OperatorStatus.WAITING_FOR_INPUT
        has_processor = self._has_processor(operator)
        return OperatorStatus.WAITING_FOR_OUTPUT if has_processor else OperatorStatus.WAITING_FOR_PROCESSOR

    def _is_active(self) -> bool:
        """Return whether an item is ready or an operator is active."""
        return bool(self.root.ready) or any(map(_is_active, self.operators))

    # ------------------------------------------------------------ decisions

    def _advance(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        self._move(instructions)
        self._scale_pools(instructions)
        for operator in self.operators:
            instructions.extend(self._resume_tasks(operator))
            while self._may_start(operator):
                instructions.append(Start(self._start_task(operator)))
        if not self._is_active():
            instructions.extend(self._force_progress())
        if self.on_change is not None:
            self.on_change()
        return instructions

    def _resume_tasks(self, operator: Operator) -> Iterator[Instruction]:
        for task in operator.running:
            if task.paused and self._has_processor(operator) and self._may_continue(task):
                task.paused = False
                yield Resume(task)

    def _start_task(self, operator: Operator) -> Task:
        """Start the next task of an operator; set whether it borrows the processor of a paused task."""
        free = self.limits.cpus - self._count_cpus()
        task = operator.next_task()
        # The engine reports a task that asks for more CPUs than exist.
        task.borrows = operator.pool is None and free < operator.cpus <= self.limits.cpus
        return task

    def _force_progress(self) -> list[Instruction]:
        """Continue or start the most downstream task, regardless of the limits: it frees memory soonest."""
        for operator in self.operators:
            for task in operator.running:
                if task.paused:
                    task.paused = False
                    return [Resume(task)]
            if operator not in self._stopped and operator.may_start():
                return [Start(self._start_task(operator))]
        return []

    def _move(self, instructions: list[Instruction]) -> None:
        """Move ready items from operator to operator, upstream first."""
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
        """Start missing actors, and stop idle ones so that others can use their resources."""
        for operator in self.operators:
            pool = operator.pool
            if pool is None or operator.finished or operator in self._stopped:
                continue
            if operator.all_tasks_started:
                instructions.extend(map(StopActor, pool.remove_idle(all_tasks_started=True)))
                continue
            instructions.extend(map(StopActor, pool.remove_idle(all_tasks_started=False)))
            for _ in range(pool.count_missing(operator.waiting)):
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
        """Return whether to start another task of this operator now."""
        if operator in self._stopped or not operator.may_start() or not self._has_processor(operator):
            return False
        if self.short_of_memory:
            return False
        if operator.is_barrier or self._feeds_barrier(operator):
            return True
        return self.used + self._expected_bytes(operator) <= self._room(operator)

    def _room(self, operator: Operator) -> int:
        """Return the bytes of blocks up to which this operator may create another."""
        return int(self.limits.bytes * self._shares[operator])

    def _expected_bytes(self, operator: Operator) -> int:
        """Return the bytes that another task of this operator adds, together with its running tasks.

        A task counts with two blocks at most, because it is paused before its third.
        """
        each = min(operator.expected_bytes, 2 * self.block_size) if operator.tasks_ended else self.block_size
        return each * (1 + sum(not task.ended for task in operator.running))

    def _feeds_barrier(self, operator: Operator) -> bool:
        """Return whether a barrier consumes this operator. It is then never paused: its blocks can be spilled."""
        return any(other.is_barrier and operator in other.inputs for other in self.operators)

    def _has_processor(self, operator: Operator) -> bool:
        """Return whether a processor is free for a task of this operator."""
        if operator.pool is not None:
            return True
        in_use = sum(
            other.cpus * sum(task.is_active for task in other.running)
            for other in self.operators
            if other.pool is None
        )
        return operator.cpus <= self.limits.cpus - in_use

    def _count_cpus(self) -> float:
        """Return the CPUs of all tasks that have not ended, including paused ones."""
        return sum(
            operator.cpus * sum(not task.ended and not task.borrows for task in operator.running)
            for operator in self.operators
            if operator.pool is None
        )

    def _may_continue(self, task: Task) -> bool:
        """Return whether a running task may create its next block."""
        operator = task.operator
        if operator.is_barrier or self._feeds_barrier(operator):
            return True
        if self.used <= self._room(operator) and not self.short_of_memory:
            return True
        # Over the limit, only the next block in order may be created, if an idle operator waits for it.
        is_next = not getattr(operator, "in_order", False) or operator.running[0] is task
        return is_next and not operator.ready and self._is_waited_for(operator)

    def _is_waited_for(self, operator: Operator) -> bool:
        """Return whether all operators downstream are idle and wait for this one."""
        for other in self.operators:
            if other is operator:
                return True
            if other.ready or other.has_task() or _is_active(other):
                return False
            if isinstance(other, Union) and operator in other.inputs:
                return other.inputs[other.current] is operator
        return True


def _is_active(operator: Operator) -> bool:
    """Return whether an operator has a task that is not paused, or tasks that wait for its first actor to start."""
    if operator.pool is not None and operator.waiting and operator.pool.is_starting():
        return True
    return any(task.is_active for task in operator.running)


def _downstream_first(root: Operator) -> Iterator[Operator]:
    waiting = [root]
    while waiting:
        operator = waiting.pop(0)
        yield operator
        waiting.extend(operator.inputs)
