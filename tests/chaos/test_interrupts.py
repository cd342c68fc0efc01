"""Ctrl-C at any moment: KeyboardInterrupt is raised, the program ends, and nothing is left."""

from __future__ import annotations

import random
import select
import signal

import pytest

from tests.chaos.arena import Arena
from tests.chaos.terminal import Terminal

# What the program is doing, and up to how many seconds later the key is pressed.
MOMENTS = {
    "import": 0.3,
    "init": 0.3,
    "submit": 0.2,
    "get": 0.02,
    "gets": 0.2,
    "batches": 0.2,
    "wait": 0.02,
    "waits": 0.2,
    "calls": 0.2,
    "objects": 0.2,
    "stream": 0.2,
    "shutdown": 0.05,
}


# Iterating over a dataset, with and without a thread that prepares batches ahead.
ITERATING = ["dataset", "dataset_alone"]


def interrupt(arena: Arena, moment: str, seed: int, mark: str | None = None) -> None:
    rng = random.Random(f"{moment} {seed}")
    terminal = Terminal()
    try:
        driver = arena.start("interrupted.py", moment, terminal=terminal.slave)
        driver.wait_for(mark or moment)
        select.select([], [], [], rng.uniform(0, MOMENTS.get(moment, 0.05)))
        terminal.press_ctrl_c()
        code = driver.wait()
        driver.assert_nothing_left()
    finally:
        text = terminal.close()
    # Python ends itself by the signal when nobody handles the exception, which a shell shows as 130. Before 3.12,
    # it makes another exception of one that comes while a class is given its attributes.
    in_a_class = code == 1 and "RuntimeError: Error calling __set_name__" in text
    assert code in (-signal.SIGINT, 130) or in_a_class, f"ended with {code}:\n{text}"
    assert "KeyboardInterrupt" in text
    assert "Please report this" not in text


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_ends_a_program_and_leaves_nothing(arena: Arena, moment: str) -> None:
    interrupt(arena, moment, 0)


@pytest.mark.parametrize("moment", ITERATING)
def test_ctrl_c_does_not_wait_for_the_next_block_of_a_dataset(arena: Arena, moment: str) -> None:
    interrupt(arena, moment, 0, mark="batch")


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(1, 16))
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_ends_a_program_and_leaves_nothing_at_many_moments(
    arena: Arena, moment: str, seed: int
) -> None:
    interrupt(arena, moment, seed)


def survive(arena: Arena, times: int, seed: int) -> None:
    rng = random.Random(seed)
    terminal = Terminal()
    try:
        driver = arena.start("interrupted.py", "survive", times, terminal=terminal.slave)
        for _ in range(times):
            driver.wait_for("again")
            select.select([], [], [], rng.uniform(0, 0.03))
            terminal.press_ctrl_c()
        report = driver.report()
        code = driver.wait()
        driver.assert_nothing_left()
    finally:
        text = terminal.close()
    assert report.endswith("over\n"), f"{report}\n{text}"
    assert code == 0, text


def test_a_session_goes_on_after_ctrl_c(arena: Arena) -> None:
    survive(arena, 20, seed=0)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_session_goes_on_after_ctrl_c_many_times(arena: Arena, seed: int) -> None:
    survive(arena, 100, seed)
