from __future__ import annotations

import pytest

from skate._engine.local import messages as m
from skate._engine.local.printing import OutputPrinter


def test_lines_carry_who_printed_them(capsys: pytest.CaptureFixture[str]) -> None:
    OutputPrinter().show(m.Output("f", 12, ["hello"]))
    assert capsys.readouterr().out == "(f pid=12) hello\n"


def test_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    OutputPrinter().show(m.Output("f", 12, ["oh"], error=True))
    assert capsys.readouterr().err == "(f pid=12) oh\n"


def test_the_same_line_of_several_workers_is_shown_once_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = OutputPrinter()
    for pid in (1, 2, 3):
        printer.show(m.Output("f", pid, ["same"]))
    assert capsys.readouterr().out == "(f pid=1) same\n"
    printer.close()
    assert capsys.readouterr().out == "(f pid=3) same [repeated 2x across workers]\n"


def test_the_same_line_of_one_worker_is_shown_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter()
    printer.show(m.Output("f", 1, ["tick", "tick"]))
    printer.close()
    assert capsys.readouterr().out == "(f pid=1) tick\n" * 2


def test_counting_can_be_switched_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_DEDUP_LOGS", "0")
    printer = OutputPrinter()
    for pid in (1, 2):
        printer.show(m.Output("f", pid, ["same"]))
    assert capsys.readouterr().out == "(f pid=1) same\n(f pid=2) same\n"
