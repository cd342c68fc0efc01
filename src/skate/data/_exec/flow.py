"""Decides what a running plan does next: which task to start, which to hold back, when to stop.

Events come in as calls, instructions go out as a list: `Flow` starts nothing itself, so that the same decisions drive
worker processes and a plan that runs in this process. It has no clock.

A task is started where the most downstream operator has something to do, as long as there is a processor for it and
the blocks that exist because of the plan stay within the budget. Whoever makes blocks that nobody has taken is held
back too, block by block. If nothing runs and nothing is ready, one task is started whatever the budget says: a plan
always gets on, with a single huge block as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skate.data._exec.items import Item
from skate.data._exec.operators import Operator
from skate.data._exec.passing import Union
from skate.data._exec.pool import Member, Pool
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

    pool: Pool
    member: Member


@dataclass(frozen=True, slots=True)
class StopActor:
    """End an actor that has nothing to do any more."""

    member: Member


Instruction = Start | Resume | Cancel | StartActor | StopActor


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


class Flow:
    """A plan that runs."""

    def __init__(self, root: Operator, limits: Limits, block_size: int = 0) -> None:
        self.root = root
        self.limits = limits
        self.operators = list(_downstream_first(root))
        self.block_size = block_size  # of a usual block: what is guessed before a task of its kind has ended
        self.in_use = 0  # bytes of the items that the consumer has taken and not let go of
        self.memory_of: dict[int, int] = {}  # of the worker processes, by process id
        self._told_closed: set[tuple[int, int]] = set()
        self._stopped: set[Operator] = set()

    # ------------------------------------------------------------ events

    def begin(self) -> list[Instruction]:
        """Return what to do first."""
        return self._advance()

    def made(self, task: Task, item: Item) -> list[Instruction]:
        """A task has made an item. Afterwards, `task.paused` tells whether to wait with the next."""
        if task.operator in self._stopped:
            return []
        task.operator.made(task, item)
        instructions = self._advance()
        task.paused = not self._may_go_on(task)
        return instructions

    def ended(self, task: Task) -> list[Instruction]:
        """A task has made its last item."""
        if task.operator in self._stopped:
            return []
        task.operator.ended(task)
        return self._advance()

    def actor_started(self, member: Member, handle: Any) -> list[Instruction]:
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
        return [*cancelled, *self._dismissed()]

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
    def at_work(self) -> int:
        """How many tasks run or are held back."""
        return sum(not task.ended for operator in self.operators for task in operator.running)

    # ------------------------------------------------------------ deciding

    def _advance(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        self._move(instructions)
        self._staff(instructions)
        while (operator := self._choose()) is not None:
            instructions.append(Start(operator.next_task()))
        for operator in self.operators:
            for task in operator.running:
                if task.paused and self._may_go_on(task):
                    task.paused = False
                    instructions.append(Resume(task))
        return instructions

    def _move(self, instructions: list[Instruction]) -> None:
        """Pass items on from operator to operator, upstream first."""
        for operator in reversed(self.operators):
            if operator.finished and operator not in self._stopped:
                self._stop_inputs(operator, instructions)
                continue
            for port, input in enumerate(operator.inputs):
                while input.ready and not operator.finished:
                    operator.receive(port, input.take())
                if input.finished and not input.ready and (id(operator), port) not in self._told_closed:
                    self._told_closed.add((id(operator), port))
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
            instructions.extend(self._dismiss(operator.pool))

    def _stop(self, operator: Operator) -> list[Task]:
        self._stopped.add(operator)
        tasks = [task for task in operator.stop() if not task.ended]
        operator.ready.clear()
        operator.ready_bytes = 0
        return tasks

    def _staff(self, instructions: list[Instruction]) -> None:
        """Start the actors that are missing."""
        for operator in self.operators:
            pool = operator.pool
            if pool is None or operator.finished or operator in self._stopped:
                continue
            for _ in range(pool.wants_more(operator.waiting)):
                member = Member()
                pool.members.append(member)
                instructions.append(StartActor(pool, member))

    def _dismissed(self) -> list[Instruction]:
        return [
            stop
            for operator in self.operators
            if operator.pool is not None
            for stop in self._dismiss(operator.pool)
        ]

    def _dismiss(self, pool: Pool) -> list[Instruction]:
        gone, pool.members = pool.members, []
        return [StopActor(member) for member in gone]

    def _choose(self) -> Operator | None:
        """Return the operator that should start a task now."""
        candidates = [
            operator for operator in self.operators if operator.has_task() and operator not in self._stopped
        ]
        if not candidates:
            return None
        if not self.at_work and not self.root.ready:
            return candidates[0]
        used, free = self.used, self.limits.cpus - self._cpus_in_use()
        if self.limits.memory is not None and used + sum(self.memory_of.values()) > self.limits.memory:
            return None
        for operator in candidates:
            most = operator.most_running
            if most is not None and sum(not task.ended for task in operator.running) >= most:
                continue
            if operator.pool is None and operator.cpus > free:
                continue
            if operator.gathers or self._feeds_gathering(operator):
                return operator
            if used + self._expected(operator) <= self.limits.bytes:
                return operator
        return None

    def _expected(self, operator: Operator) -> int:
        """Bytes that one more task of this operator would add, given that others of it have just begun.

        A task that makes more than two blocks is held back before it makes the third.
        """
        each = min(operator.expected, 2 * self.block_size) if operator.tasks_ended else self.block_size
        return each * (1 + sum(not task.ended for task in operator.running))

    def _feeds_gathering(self, operator: Operator) -> bool:
        """Tell whether what the operator makes is gathered: it is not held back, as it will be spilled if need be."""
        return any(other.gathers and operator in other.inputs for other in self.operators)

    def _cpus_in_use(self) -> float:
        return sum(
            operator.cpus * sum(not task.ended for task in operator.running)
            for operator in self.operators
            if operator.pool is None
        )

    def _may_go_on(self, task: Task) -> bool:
        """Tell whether a running task may make its next block."""
        operator = task.operator
        if operator.gathers or self._feeds_gathering(operator) or self.used <= self.limits.bytes:
            return True
        # Over budget: only what somebody waits for, which is the next block in order of an operator that has none.
        is_next = not getattr(operator, "in_order", False) or operator.running[0] is task
        return is_next and not operator.ready and self._is_waited_for(operator)

    def _is_waited_for(self, operator: Operator) -> bool:
        """Tell whether everything downstream is idle for want of what this operator makes."""
        for other in self.operators:
            if other is operator:
                return True
            if other.ready or other.has_task() or any(not task.ended for task in other.running):
                return False
            if isinstance(other, Union) and operator in other.inputs:
                return other.inputs[other.current] is operator
        return True


def _downstream_first(root: Operator) -> Iterator[Operator]:
    waiting = [root]
    while waiting:
        operator = waiting.pop(0)
        yield operator
        waiting.extend(operator.inputs)
