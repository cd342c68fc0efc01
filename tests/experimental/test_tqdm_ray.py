"""Progress bars as text: their content, their intervals, and their output on the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from skate.experimental import tqdm_ray
from skate.experimental.tqdm_ray import tqdm

NEVER = 3600.0  # seconds until the next line

PROGRAM = """
import skate
from skate.experimental import tqdm_ray

@skate.remote
def work():
    return sum(tqdm_ray.tqdm(range(5), desc="working", unit="steps", flush_interval_s=3600))

assert skate.get(work.remote()) == 10
"""


def lines(captured: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that bars have written since the last time."""
    return captured.readouterr().err.splitlines()


def test_a_loop_says_where_it_is_first_and_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tqdm("abc", desc="letters", flush_interval_s=NEVER)) == ["a", "b", "c"]
    assert lines(capsys) == ["letters: 1/3 it", "letters: 3/3 it, done"]


def test_without_an_interval_every_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm[int](total=4, unit="rows", flush_interval_s=0)
    bar.update(2)
    bar.set_description("reading")
    bar.total = 5
    bar.refresh()
    bar.close()
    assert lines(capsys) == ["2/4 rows", "reading: 2/4 rows", "reading: 2/5 rows", "reading: 2/5 rows, done"]


def test_a_bar_that_is_closed_twice_ends_once(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm[int](desc="once")
    bar.close()
    bar.close()
    assert lines(capsys) == ["once: 0 it, done"]


def test_a_loop_that_is_left_early_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    def numbers() -> Iterator[int]:
        yield from range(10)

    steps = iter(tqdm(numbers(), desc="some", flush_interval_s=NEVER))
    assert [next(steps), next(steps)] == [0, 1]
    steps.close()  # type: ignore[attr-defined]  # an iterator of a bar is a generator
    assert lines(capsys) == ["some: 1 it", "some: 1 it, done"]


def test_a_bar_without_an_iterable_cannot_be_looped_over() -> None:
    with pytest.raises(ValueError, match="has no iterable"):
        next(iter(tqdm[int](total=3)))


def test_safe_print_prints(capsys: pytest.CaptureFixture[str]) -> None:
    tqdm_ray.safe_print("a", 1, sep="-")
    assert capsys.readouterr().out == "a-1\n"


def test_a_bar_in_a_task_is_seen_where_the_driver_prints() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "working: 5/5 steps, done" in done.stdout + done.stderr


def test_the_switch_of_all_progress_turns_bars_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_PROGRESS", "0")
    assert list(tqdm("abc")) == ["a", "b", "c"]
    assert lines(capsys) == []
