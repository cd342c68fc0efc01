"""The progress table of a running plan."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

import skate
from skate.air import _live
from skate.data._exec import operator_stats
from skate.data._execution import Execution


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nobody_looks_at_what_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert not operator_stats.shows_progress(True)
    monkeypatch.setattr("sys.stderr", Terminal())
    assert operator_stats.shows_progress(True)
    assert not operator_stats.shows_progress(False)
    monkeypatch.setenv(_live.SWITCH, "0")
    assert not operator_stats.shows_progress(True)


def test_there_is_a_line_for_each_step_that_works() -> None:
    ds = skate.data.range(1000, override_num_blocks=4).map(lambda row: row).sort("id")
    run = Execution(ds._node, ds.context)
    for _ in run:
        pass
    shown = operator_stats.ProgressTable("numbers", run.stats)
    shown.stop()
    screen = Console(file=io.StringIO(), width=120)
    screen.print(shown.lines())
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "numbers" in text
    [read] = [line for line in text.splitlines() if "ReadRange->Map(<lambda>)" in line]
    assert "1,000" in read
    assert any(line.startswith("Sort") for line in text.splitlines())


def test_lines_are_shown_while_the_plan_runs_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(_live, "DELAY", 0)
    before = set(threading.enumerate())
    shown = threading.Event()
    lines = operator_stats.ProgressTable.lines

    def noted(self: Any) -> Any:
        shown.set()
        return lines(self)

    monkeypatch.setattr(operator_stats.ProgressTable, "lines", noted)
    for _ in skate.data.range(10).map(lambda row: row).iter_rows():
        assert shown.wait(10)
    assert "ReadRange" in terminal.getvalue()
    assert set(threading.enumerate()) <= before
