"""Random programs of actors, tasks and resources end, or raise DeadlockError where some order of events is one.

A program is a tree of invocations. Each runs in an actor, which runs one at a time, or in a task, which holds some of a
resource; it calls its children, waits for all of them and returns how many ran. A simulation that tries all orders
says whether the program can end, and whether it can get stuck.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import skate
from skate.exceptions import DeadlockError

pytestmark = pytest.mark.chaos

AVAILABLE = 2  # of the resource "x"
PROGRAMS = 25
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1 << 30)


@dataclass
class Invocation:
    """One call: where it runs, how it waits, and what it calls."""

    actor: int  # -1 for a task
    held: int  # of a task: how much of "x" it holds
    how: str  # "get", "one by one", "wait"
    children: list[Invocation] = field(default_factory=list)

    def every(self) -> Iterator[Invocation]:
        yield self
        for child in self.children:
            yield from child.every()


def random_program(choose: random.Random) -> tuple[list[Invocation], list[bool]]:
    """Return the roots of a program, and which of its actors are asynchronous."""
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
            elif status == 2 and (not children[i] or _may_return(every[i], children[i], state)):
                moves.append(tuple(3 if j == i else old for j, old in enumerate(state)))
        if not moves:
            found.add("ends" if all(status == 3 for status in state) else "stuck")
        for move in moves:
            if move not in seen:
                seen.add(move)
                todo.append(move)
    return found


def _may_return(invocation: Invocation, children: list[int], state: tuple[int, ...]) -> bool:
    return all(state[child] == 3 for child in children)


def call(invocation: Invocation, actors: list[Any]) -> Any:
    """Call an invocation; return its reference."""
    if invocation.actor >= 0:
        return actors[invocation.actor].run.remote(invocation, actors)
    return run_in_task.options(resources={"x": invocation.held} if invocation.held else {}).remote(
        invocation, actors
    )


def run(invocation: Invocation, actors: list[Any]) -> int:
    references = [call(child, actors) for child in invocation.children]
    if invocation.how == "wait" and references:
        references, _ = skate.wait(references, num_returns=len(references))
    if invocation.how == "one by one":
        return 1 + sum(skate.get(reference) for reference in references)
    return 1 + sum(skate.get(references))


@skate.remote(num_cpus=0, max_retries=0)
def run_in_task(invocation: Invocation, actors: list[Any]) -> int:
    return run(invocation, actors)


@skate.remote(num_cpus=0)
class Plain:
    def run(self, invocation: Invocation, actors: list[Any]) -> int:
        return run(invocation, actors)


@skate.remote(num_cpus=0, max_concurrency=1)
class Asynchronous:
    async def run(self, invocation: Invocation, actors: list[Any]) -> int:
        import asyncio

        references = [call(child, actors) for child in invocation.children]
        if invocation.how == "get":
            return 1 + sum(await asyncio.gather(*references))
        return 1 + sum([await reference for reference in references])


@pytest.mark.timeout(600)
def test_random_programs_end_or_raise_where_they_can_get_stuck() -> None:
    skate.init(num_cpus=2, resources={"x": AVAILABLE}, log_to_driver=False)
    seen = {"ends": 0, "stuck": 0}
    try:
        for seed in range(SEED, SEED + PROGRAMS):
            choose = random.Random(seed)
            roots, kinds = random_program(choose)
            possible = outcomes(roots)
            actors = [(Asynchronous if is_async else Plain).remote() for is_async in kinds]
            references = [call(root, actors) for root in roots]
            outcome = "ends"
            for root, reference in zip(roots, references, strict=True):
                try:
                    assert skate.get(reference) == len(list(root.every())), f"seed {seed}"
                except DeadlockError:
                    outcome = "stuck"
            assert outcome in possible, f"seed {seed}: {outcome}, but only {possible} can be"
            seen[outcome] += 1
            for actor in actors:
                skate.kill(actor)
    finally:
        skate.shutdown()
    assert all(seen.values()), seen
