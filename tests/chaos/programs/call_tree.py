"""Runs random programs of nested calls, one for each seed that the test sends, and reports how each ended.

With the argument "active", the driver has a thread that could do something at any time, so that only the actors and
tasks of a deadlock are known to be stuck.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from reporting import ARGUMENTS, report
from tests.chaos.call_trees import AVAILABLE, RESOURCE, Invocation, random_program

import skate
from skate.exceptions import DeadlockError


def call(invocation: Invocation, actors: list[Any]) -> Any:
    """Call an invocation; return its reference."""
    if invocation.actor >= 0:
        return actors[invocation.actor].run.remote(invocation, actors)
    held = {RESOURCE: invocation.held} if invocation.held else {}
    return run_in_task.options(resources=held).remote(invocation, actors)


def run(invocation: Invocation, actors: list[Any]) -> int:
    """Call the children of an invocation, wait for them, and return how many ran, with this one."""
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
        references = [call(child, actors) for child in invocation.children]
        if invocation.how == "get":
            return 1 + sum(await asyncio.gather(*references))
        return 1 + sum([await reference for reference in references])


def outcome_of(seed: int) -> str:
    """Run one program; return how it ended."""
    roots, kinds = random_program(seed)
    actors = [(Asynchronous if is_async else Plain).remote() for is_async in kinds]
    references = [call(root, actors) for root in roots]
    outcome = "ends"
    for root, reference in zip(roots, references, strict=True):
        try:
            ran, expected = skate.get(reference), len(list(root.every()))
            if ran != expected:
                outcome = f"{ran} invocations ran instead of {expected}"
        except DeadlockError:
            outcome = "stuck"
    for actor in actors:
        skate.kill(actor)
    return outcome


if ARGUMENTS == ["active"]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
skate.init(num_cpus=2, resources={RESOURCE: AVAILABLE}, log_to_driver=False)
report("started")
for line in sys.stdin:
    report(outcome_of(int(line)))
skate.shutdown()
