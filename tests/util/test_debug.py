from __future__ import annotations

import pytest

from skate.util import debug


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_last_logged", {})
    monkeypatch.setattr(debug, "_disabled", False)
    monkeypatch.setattr(debug, "_periodic", False)


def test_each_key_is_logged_once() -> None:
    assert [debug.log_once(key) for key in "abab"] == [True, True, False, False]


def test_a_reset_key_is_logged_again() -> None:
    for key in "ab":
        debug.log_once(key)
    debug.reset_log_once("a")
    debug.reset_log_once("never asked")
    assert [debug.log_once(key) for key in "ab"] == [True, False]
    debug.reset_log_once()
    assert [debug.log_once(key) for key in "ab"] == [True, True]


def test_nothing_is_logged_once_disabled() -> None:
    debug.disable_log_once_globally()
    assert not debug.log_once("a")


def test_periodic_logging_repeats_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("skate.util.debug.time.monotonic", lambda: now)
    debug.enable_periodic_logging()
    assert debug.log_once("a")
    now += debug.PERIOD_SECONDS - 1
    assert not debug.log_once("a")
    now += 1
    assert debug.log_once("a")


def test_a_suspect_of_a_memory_leak_is_a_tuple() -> None:
    suspect = debug.Suspect(traceback="line", memory_increase=2.0, slope=1.0, rvalue=0.9, hist=[1.0, 3.0])
    assert suspect == ("line", 2.0, 1.0, 0.9, [1.0, 3.0])
