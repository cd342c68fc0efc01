"""Random programs of nested calls, and a simulation of how each can end.

A program is a list of trees of invocations. Each invocation runs in an actor, which runs one at a time, or in a task,
which holds some of a resource; it calls its children, waits for all of them and returns how many ran.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

RESOURCE = "x"
AVAILABLE = 2  # of the resource


@dataclass
class Invocation:
    """One call: where it runs, how it waits, and what it calls."""

    actor: int  # -1 for a task
    held: int  # of a task: how much of the resource it holds
    how: str  # "get", "one by one", "wait"
    children: list[Invocation] = field(default_factory=list)

    def every(self) -> Iterator[Invocation]:
        """Yield this invocation and all below it."""
        yield self
        for child in self.children:
            yield from child.every()


def random_program(seed: int) -> tuple[list[Invocation], list[bool]]:
    """Return the roots of a program, and which of its actors are asynchronous."""
    choose = random.Random(seed)
    actors = [choose.random() < 0.5 for _ in range(choose.randint(1, 3))]
    left = choose.randint(2, 7)
    roots: list[Invocation] = []
    made: list[Invocation] = []
    while left:
        actor = choose.randrange(len(actors)) if choose.random() < 0.55 else -1
        how = choose.choice(("get", "one by one", "wait"))
        invocation = Invocation(actor, choose.randint(0, AVAILABLE) if actor < 0 else 0, how)
        parent = choose.choice(made) if made and choose.random() < 0.8 else None
        (roots if parent is None else parent.children).append(invocation)
        made.append(invocation)
        left -= 1
    return roots, actors


def outcomes(roots: list[Invocation]) -> set[str]:
    """Return how the program can end: "ends", "stuck", or both, depending on the order of events."""
    every = [invocation for root in roots for invocation in root.every()]
    index = {id(invocation): position for position, invocation in enumerate(every)}
    children = [[index[id(child)] for child in invocation.children] for invocation in every]
    # Of each invocation: 0 has not been called, 1 waits for its turn, 2 runs, 3 is over.
    start = tuple(1 if any(invocation is root for root in roots) else 0 for invocation in every)
    seen, todo, found = {start}, [start], set()
    while todo:
        state = todo.pop()
        busy = {every[i].actor for i, status in enumerate(state) if status == 2}
        free = AVAILABLE - sum(every[i].held for i, status in enumerate(state) if status == 2)
        moves = []
        for i, status in enumerate(state):
            fits = every[i].held <= free if every[i].actor < 0 else every[i].actor not in busy
            if status == 1 and fits:
                moves.append(
                    tuple(2 if j == i else 1 if j in children[i] else old for j, old in enumerate(state))
                )
            elif status == 2 and all(state[child] == 3 for child in children[i]):
                moves.append(tuple(3 if j == i else old for j, old in enumerate(state)))
        if not moves:
            found.add("ends" if all(status == 3 for status in state) else "stuck")
        for move in moves:
            if move not in seen:
                seen.add(move)
                todo.append(move)
    return found
