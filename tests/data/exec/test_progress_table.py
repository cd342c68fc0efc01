"""The progress of a running plan."""

from __future__ import annotations

import io
import sys
import threading

import pytest

import skate
from skate._api.progress import View, display
from skate._api.progress.terminal import render_lines
from skate.data._exec.operator_stats import IdleTimes
from skate.data._exec.progress import PlanProgress
from skate.data._exec.run_description import RunDescription
from skate.data._execution import Execution


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def view_after(ds: skate.data.Dataset, *, total: int | None = None) -> View | None:
    """Run a plan, and return its view."""
    run = Execution(ds._node, ds.context)
    rows = iter(run)
    next(rows)
    describe = RunDescription(
        run.scheduler, run.stats, run._idle_times or IdleTimes(run.scheduler, run.stats), lambda: total
    )
    for _ in rows:
        pass
    options = ds.context.execution_options
    return PlanProgress(
        "numbers",
        describe,
        run.stats,
        has_operators=ds.context.enable_operator_progress_bars,
        is_verbose=options.verbose_progress,
        is_awaited=lambda: True,
    ).view()


def sorted_numbers() -> skate.data.Dataset:
    return skate.data.range(1000, override_num_blocks=4).map(lambda row: row).sort("id")


def lines_of(view: View | None) -> list[str]:
    assert view is not None
    return [line.rstrip() for line, _ in render_lines([view], io.StringIO(), 120)]


def test_there_is_a_line_for_each_step_that_works() -> None:
    title, head, read, order = lines_of(view_after(sorted_numbers()))
    assert title.startswith("numbers")
    assert head.split() == ["step", "running", "queued", "rows", "rows/s", "size"]
    assert read.startswith("ReadRange->Map(<lambda>)")
    assert "1,000" in read
    assert order.startswith("Sort")


def test_a_bar_shows_the_share_if_the_number_of_rows_is_known() -> None:
    bar = lines_of(view_after(sorted_numbers(), total=2000))[1]
    assert bar.lstrip().startswith("50% ")
    assert "1,000 of 2,000 rows" in bar


def test_a_setting_hides_the_steps_and_another_explains_them() -> None:
    context = skate.data.DataContext.get_current().copy()
    with skate.data.DataContext.current(context):
        context.enable_operator_progress_bars = False
        _, counts = lines_of(view_after(sorted_numbers()))
        assert counts.startswith("1,000 rows")
        context.enable_operator_progress_bars = True
        context.execution_options.verbose_progress = True
        assert "memory  waits for" in lines_of(view_after(sorted_numbers()))[1]


def test_nothing_is_drawn_over_the_prompt_of_an_interactive_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    ds = skate.data.range(1000, override_num_blocks=4).map(lambda row: row)
    run = Execution(ds._node, ds.context)
    describe: list[PlanProgress] = []
    monkeypatch.setattr("skate._api.progress.show", lambda view: describe.append(view.__self__))
    rows = iter(run)
    next(rows)
    (progress,) = describe
    assert progress.view() is None  # the user has a block, and may type
    assert len(list(rows)) == 3
    assert progress.view() is not None  # the end


def test_lines_are_shown_while_the_plan_runs_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(display, "DELAY_S", 0)
    shown = threading.Event()
    view = PlanProgress.view

    def noted(self: PlanProgress) -> View | None:
        shown.set()
        return view(self)

    monkeypatch.setattr(PlanProgress, "view", noted)
    for _ in skate.data.range(10).map(lambda row: row).iter_rows():
        assert shown.wait(10)
    assert "ReadRange" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[J")


def test_a_setting_turns_the_display_off(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = sorted_numbers()
    ds.context.enable_progress_bars = False
    monkeypatch.setattr(display, "Shown", None)  # fails if it is called
    assert ds.count() == 1000
