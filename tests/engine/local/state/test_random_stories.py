"""Random histories: the invariants of the machine hold, whatever the processes around it do.

`SKATE_TRANSITIONS` sets how many transitions are made (120,000 by default), `SKATE_SEED` where the
seeds start; a story that fails prints its seed and is told again, shortened.
"""

from __future__ import annotations

import os

import pytest

from tests.engine.local.state.simulation import stories
from tests.engine.local.state.simulation.failure import Violation
from tests.engine.local.state.simulation.profiles import PROFILES
from tests.engine.local.state.simulation.simulation import Simulation
from tests.engine.local.state.simulation.stories import shorten

TRANSITIONS = int(os.environ.get("SKATE_TRANSITIONS", "120000"))
SEED = int(os.environ.get("SKATE_SEED", "0"))
STEPS = 800
PARTS = 6


@pytest.mark.timeout(0 if TRANSITIONS > 200_000 else 300)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_story_ends_well(part: int) -> None:
    made = 0
    seed = SEED + part * 1_000_000
    while made < TRANSITIONS // PARTS:
        made += stories.tell(seed, STEPS)
        seed += 1


def test_a_story_is_about_one_of_all_profiles() -> None:
    names = [profile.name for profile in PROFILES]
    assert len(set(names)) == len(names) >= 5


def test_a_failure_prints_its_seed_and_a_shortened_story(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Simulation.settle

    def fail_at_the_first_task(world: Simulation) -> None:
        honest(world)
        if world.machine.tasks.table:
            raise Violation("a task was submitted")

    monkeypatch.setattr(Simulation, "settle", fail_at_the_first_task)
    with pytest.raises(AssertionError) as caught:
        stories.tell(3, STEPS)
    text = str(caught.value)
    assert text.startswith(f"seed 3, {STEPS} steps: Violation: a task was submitted")
    assert "SubmitMany(" in text
    assert len(text.splitlines()) < 25


def test_shortening_leaves_only_what_is_needed() -> None:
    tape = [[number] for number in range(50)]
    needed = [[0], [17], [31]]
    found = shorten(tape, lambda candidate: all(step in candidate for step in needed), timeout_s=5.0)
    assert found == needed
