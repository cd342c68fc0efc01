"""Signals that arrive while messages are read, written or handled."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from skate._engine.local.wire import interrupts
from skate._engine.local.wire.interrupts import MOST_DEFERRALS, Interrupts, critical, waiting


class Handled:
    """Counts the signals that were handled."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.event.set()


@pytest.fixture
def handled() -> Handled:
    return Handled()


@pytest.fixture
def installed(handled: Handled) -> Iterator[Interrupts]:
    found = Interrupts(handled, number=signal.SIGUSR1, default=signal.SIG_DFL)
    found.install(always=True)
    yield found
    found.uninstall()


def raise_signal() -> None:
    signal.raise_signal(signal.SIGUSR1)


def raise_in_critical(handled: Handled) -> int:
    raise_signal()
    return handled.count


def raise_in_waiting() -> None:
    raise_signal()


def wait_in_critical(handled: Handled) -> int:
    raise_in_waiting()
    return handled.count


critical(raise_in_critical, wait_in_critical)
waiting(raise_in_waiting)


def test_a_signal_in_a_critical_function_is_handled_after_it(installed: Interrupts, handled: Handled) -> None:
    assert raise_in_critical(handled) == 0
    assert handled.event.wait(10)
    assert handled.count == 1


def test_a_signal_while_a_critical_function_waits_is_handled_at_once(
    installed: Interrupts, handled: Handled
) -> None:
    assert wait_in_critical(handled) == 1


def frame_in_critical() -> FrameType:
    return sys._getframe()


critical(frame_in_critical)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def do_nothing(*arguments: Any) -> None:
        pass

    monkeypatch.setattr(interrupts._thread, "start_new_thread", do_nothing)


@pytest.mark.usefixtures("no_threads")
def test_time_in_which_the_process_does_not_run_does_not_end_the_wait(
    handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**9, 3600))  # an hour passes between two looks at it
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: float(next(clock)))
    found = Interrupts(handled)
    for _ in range(5):
        found.arrived(signal.SIGINT, frame_in_critical())
    assert handled.count == 0


@pytest.mark.usefixtures("no_threads")
def test_a_critical_function_that_does_not_end_is_interrupted_in_the_end(handled: Handled) -> None:
    found = Interrupts(handled)
    for _ in range(MOST_DEFERRALS):
        found.arrived(signal.SIGINT, frame_in_critical())
    assert handled.count == 0
    found.arrived(signal.SIGINT, frame_in_critical())
    assert handled.count == 1
