"""Random programs of actors, tasks and resources end, or raise DeadlockError where some order of events is one."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.chaos import attacks
from tests.chaos.arena import Arena
from tests.chaos.call_trees import outcomes, random_program

PROGRAMS = int(os.environ.get("CHAOS_PROGRAMS", "25"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1 << 30)
SECONDS = 90.0  # that one program may take on a loaded machine


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAMS * SECONDS)
@pytest.mark.parametrize("state", ["active", "waiting"])
def test_random_programs_end_or_raise_where_they_can_get_stuck(arena: Arena, state: str) -> None:
    driver = arena.start("call_tree.py", state)
    driver.wait_for("started")
    seen = {"ends": 0, "stuck": 0}
    slowest = (0.0, SEED)
    for seed in range(SEED, SEED + PROGRAMS):
        began = time.monotonic()
        driver.tell(f"{seed}\n")
        outcome = driver.next_line(f"the end of the program (CHAOS_SEED={seed} CHAOS_PROGRAMS=1)", SECONDS)
        slowest = max(slowest, (time.monotonic() - began, seed))
        possible = outcomes(random_program(seed)[0])
        assert outcome in possible, f"seed {seed}: {outcome}, but only {possible} can be"
        seen[outcome] += 1
        attacks.record()
    print(f"seeds {SEED} to {SEED + PROGRAMS - 1}: {seen}, slowest {slowest[0]:.1f} s (seed {slowest[1]})")
    driver.let_end()
    assert driver.wait() == 0, driver.output()
    driver.assert_nothing_left()
    assert PROGRAMS < 20 or all(seen.values()), seen  # a few may all end the same way
