"""The thread that runs the trainable functions of a worker."""

from __future__ import annotations

import contextvars
import gc
import sys
import threading
from queue import SimpleQueue

from skate.tune._workers.function_thread import FunctionThread, switching_often


def test_functions_run_in_one_thread_and_share_no_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: SimpleQueue[tuple[int, int]] = SimpleQueue()

    def function() -> None:
        seen.put((threading.get_ident(), variable.get()))
        variable.set(1)

    thread = FunctionThread()
    for _ in range(3):
        thread.run(function)
    found = [seen.get(timeout=30) for _ in range(3)]
    assert len({ident for ident, _ in found}) == 1
    assert [value for _, value in found] == [0, 0, 0]


def test_the_thread_ends_with_its_owner() -> None:
    threads: SimpleQueue[threading.Thread] = SimpleQueue()
    owner = FunctionThread()
    owner.run(lambda: threads.put(threading.current_thread()))
    thread = threads.get(timeout=30)
    del owner
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_the_interpreter_switches_often_for_a_while() -> None:
    usual = sys.getswitchinterval()
    with switching_often():
        assert sys.getswitchinterval() < usual
    assert sys.getswitchinterval() == usual


def test_a_switch_interval_that_a_function_has_set_is_kept() -> None:
    usual = sys.getswitchinterval()
    try:
        with switching_often():
            sys.setswitchinterval(0.02)
        assert sys.getswitchinterval() == 0.02
    finally:
        sys.setswitchinterval(usual)
