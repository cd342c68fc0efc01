"""Naming the limits on processes, and attempts near them."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time

import pytest

from skate._engine.common import process_limits
from skate._engine.common.process_limits import (
    RETRY_SECONDS,
    Limit,
    explain,
    retry_with_deadline,
    start_thread,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only sleeping moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def refusing(number: int, times: float) -> object:
    left = [times]

    def start() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(number, os.strerror(number))
        return "started"

    return start


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_refusal_that_passes_is_not_an_error(clock: list[float], number: int) -> None:
    assert retry_with_deadline(refusing(number, 5)) == "started"
    assert 0 < clock[0] < RETRY_SECONDS


def test_a_refusal_that_lasts_is_an_error_with_an_explanation(clock: list[float]) -> None:
    with pytest.raises(OSError, match="no further process or thread") as caught:
        retry_with_deadline(refusing(errno.EAGAIN, float("inf")))
    assert caught.value.errno == errno.EAGAIN
    assert RETRY_SECONDS <= clock[0] < 2 * RETRY_SECONDS


def test_other_errors_are_not_waited_for(clock: list[float]) -> None:
    with pytest.raises(FileNotFoundError):
        retry_with_deadline(refusing(errno.ENOENT, 1))
    assert clock == [0.0]


def test_the_limit_that_is_reached_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = Limit("/sys/fs/cgroup/a/pids.max", 24, 24), Limit("/sys/fs/cgroup/pids.max", 100, 30)
    monkeypatch.setattr(process_limits, "_control_groups", lambda: [inner, outer])
    text = explain(errno.EAGAIN)
    assert "is reached: /sys/fs/cgroup/a/pids.max = 24, 24 in use." in text
    assert "100" not in text


def test_all_limits_are_named_if_none_is_seen_to_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        process_limits, "_control_groups", lambda: [Limit("/sys/fs/cgroup/pids.max", 100, 30)]
    )
    monkeypatch.setattr(process_limits, "_system", lambda: [Limit("kernel.pid_max", 32768)])
    assert "may be reached: /sys/fs/cgroup/pids.max = 100, 30 in use; kernel.pid_max = 32768." in explain(
        errno.EAGAIN
    )


def test_the_limit_of_a_user_is_named_unless_that_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_limits, "_control_groups", list)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert f"is reached: RLIMIT_NPROC of user {os.getuid()} (ulimit -u) = 1, " in explain(errno.EAGAIN)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "RLIMIT_NPROC" not in explain(errno.EAGAIN)


def test_missing_memory_is_explained_as_such() -> None:
    assert "no memory for another process" in explain(errno.ENOMEM)


def test_a_thread_that_cannot_start_is_an_error_with_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BlockingIOError, match="no further process or thread"):
        start_thread(threading.Thread())
