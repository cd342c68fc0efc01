"""The newest waiter is told that an actor stops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from skate.serve._runtime.stop_event import StopEvent


def test_whoever_waits_learns_that_the_actor_has_stopped() -> None:
    ending = StopEvent()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ending.wait)
        assert not ending.is_over
        ending.set()
        assert waiting.result(timeout=60) is True
    assert ending.wait() is True


def test_one_who_waits_gives_way_to_the_next() -> None:
    ending = StopEvent()
    with ThreadPoolExecutor(2) as threads:  # a third one would have no thread
        waiting = [threads.submit(ending.wait) for _ in range(10)]
        assert [each.result(timeout=60) for each in waiting[:8]] == [False] * 8
        ending.set()
        assert any(each.result(timeout=60) for each in waiting[8:])
