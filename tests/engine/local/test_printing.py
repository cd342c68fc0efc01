from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

import pytest

from skate._engine.local.driver.printing import WINDOW, Deduplicator, OutputPrinter
from skate._engine.local.wire import messages as m

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *outputs: m.Output) -> tuple[str, str]:
    printer = OutputPrinter()
    for output in outputs:
        printer.show(output)
    printer.close()
    return capsys.readouterr()


def test_lines_carry_who_printed_them(capsys: Capture) -> None:
    assert printed(capsys, m.Output("f", 12, ["hello"])) == ("(f pid=12) hello\n", "")


def test_errors_go_to_standard_error(capsys: Capture) -> None:
    assert printed(capsys, m.Output("f", 12, ["oh"], error=True)) == ("", "(f pid=12) oh\n")


def test_the_same_line_of_several_workers_is_shown_once_and_counted(capsys: Capture) -> None:
    out, _ = printed(capsys, *[m.Output("f", pid, ["same"]) for pid in (1, 2, 3)])
    assert out == "(f pid=1) same\n(f pid=3) same [repeated 2x across workers]\n"


def test_the_same_line_of_one_worker_is_shown_each_time(capsys: Capture) -> None:
    assert printed(capsys, m.Output("f", 1, ["tick", "tick"]))[0] == "(f pid=1) tick\n" * 2


def test_counting_can_be_switched_off(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_DEDUP_LOGS", "0")
    out, _ = printed(capsys, *[m.Output("f", pid, ["same"]) for pid in (1, 2)])
    assert out == "(f pid=1) same\n(f pid=2) same\n"


def test_lines_that_match_an_expression_are_shown_each_time_or_never(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS_ALLOW_REGEX", "^ERROR")
    monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "noise")
    out, _ = printed(capsys, *[m.Output("f", pid, ["ERROR noise", "noise", "rest"]) for pid in (1, 2)])
    assert out == (
        "(f pid=1) ERROR noise\n(f pid=1) rest\n(f pid=2) ERROR noise\n"
        "(f pid=2) rest [repeated 1x across workers]\n"
    )


def test_the_time_in_which_lines_count_as_the_same_has_a_variable(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS_AGG_WINDOW_S", "0")
    out, _ = printed(capsys, *[m.Output("f", pid, ["same"]) for pid in (1, 2)])
    assert out == "(f pid=1) same\n(f pid=2) same\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variable", "coloured"), [("1", True), ("0", False)])
def test_prefixes_have_a_colour_on_a_terminal_unless_a_variable_says_not(
    variable: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_COLOR_PREFIX", variable)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    printer = OutputPrinter()
    printer.show(m.Output("f", 1, ["hello"]))
    printer.close()
    assert ("\033[" in terminal.getvalue()) is coloured
    assert terminal.getvalue().endswith(" hello\n")


def test_lines_that_the_terminal_cannot_encode_are_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    printer = OutputPrinter()
    printer.show(m.Output("f", 1, ["plain", "größer"]))
    printer.close()
    assert raw.getvalue() == b"(f pid=1) plain\n(f pid=1) gr\\xf6\\xdfer\n"


# ------------------------------------------------------------ the deduplicator


def lines_of(outputs: list[m.Output]) -> list[str]:
    return [line for output in outputs for line in output.lines]


def test_a_repetition_is_summed_up_once_its_window_is_over() -> None:
    deduplicator = Deduplicator()
    assert lines_of(deduplicator.select(m.Output("f", 1, ["same"]), 0.0)) == ["same"]
    assert lines_of(deduplicator.select(m.Output("f", 2, ["same"]), 1.0)) == []
    assert deduplicator.has_repetitions
    assert lines_of(deduplicator.expire(WINDOW)) == ["same [repeated 1x across workers]"]
    assert not deduplicator.has_repetitions
    assert lines_of(deduplicator.select(m.Output("f", 2, ["same"]), WINDOW)) == ["same"]


def test_the_number_of_remembered_lines_is_bounded() -> None:
    deduplicator = Deduplicator(limit=10)
    for number in range(100):
        deduplicator.select(m.Output("f", 1, [f"{number} {index}" for index in range(100)]), 0.0)
        assert len(deduplicator) <= 10


def test_a_repetition_that_is_forgotten_early_is_still_summed_up() -> None:
    deduplicator = Deduplicator(limit=1)
    deduplicator.select(m.Output("f", 1, ["same"]), 0.0)
    deduplicator.select(m.Output("f", 2, ["same"]), 0.0)
    shown = lines_of(deduplicator.select(m.Output("f", 1, ["another"]), 0.0))
    assert shown == ["same [repeated 1x across workers]", "another"]


# ------------------------------------------------------------ a terminal that is not read


class StuckTerminal(io.StringIO):
    """Takes the first write only after `read` was called."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self._is_read = threading.Event()
        self.read_on: Callable[[], None] = self._is_read.set

    def write(self, text: str) -> int:
        self.has_begun.set()
        self._is_read.wait()
        return super().write(text)


def test_a_terminal_that_is_not_read_stops_nobody_and_lines_beyond_the_limit_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, err = StuckTerminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    printer = OutputPrinter(limit=100)
    printer.show(m.Output("f", 1, ["first"]))
    assert out.has_begun.wait(30)
    for number in range(20):  # ten of which fit
        printer.show(m.Output("f", 1, [f"{number:10}"]))
    out.read_on()
    printer.close()
    assert out.getvalue().splitlines() == [
        "(f pid=1) first",
        *(f"(f pid=1) {number:10}" for number in range(10)),
    ]
    assert err.getvalue().startswith("(skate) 10 lines of workers were not shown")


def test_lines_that_the_node_did_not_send_are_counted_too(capsys: Capture) -> None:
    _, err = printed(capsys, m.Output("f", 1, ["one"], dropped=7), m.Output("", 0, [], dropped=1))
    notices = [line for line in err.splitlines() if "not shown" in line]
    assert [line.split()[1] for line in notices] == ["7", "1"]
