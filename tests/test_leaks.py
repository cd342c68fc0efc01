"""The leak check itself: it finds and names leftovers, and passes when there are none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from tests import leaks

NO_GRACE = 0.0


@pytest.fixture
def before() -> leaks.Snapshot:
    return leaks.Snapshot.take()


def test_nothing_new_is_no_leak(before: leaks.Snapshot) -> None:
    assert leaks.leaked_since(before, NO_GRACE) == []


def test_a_child_process_is_named(before: leaks.Snapshot) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = leaks.leaked_since(before, NO_GRACE)
        assert any(str(child.pid) in leak and "input()" in leak for leak in found)


def test_a_child_of_a_child_without_the_marker_is_named(before: leaks.Snapshot) -> None:
    # Both have an empty environment; the grandchild is known by its parent alone.
    program = "import os; child = os.fork(); input() if not child else os.waitpid(child, 0)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env={}) as child:
        (grandchild,) = eventually_children_of(child.pid)
        found = leaks.leaked_since(before, NO_GRACE)
        assert any(f"process {child.pid} " in leak for leak in found)
        assert any(f"process {grandchild.pid} " in leak for leak in found)


def eventually_children_of(pid: int) -> list[psutil.Process]:
    """Wait until a process has children; the time limit of the test is that of this, too."""
    while not (children := psutil.Process(pid).children()):
        os.sched_yield()
    return children


def test_a_process_that_left_its_parent_is_named(before: leaks.Snapshot) -> None:
    # The parent ends at once; its child lives on until we close the pipe that it reads.
    reader, writer = os.pipe()
    program = f"import os; os.fork() or os.read({reader}, 1)"
    subprocess.run([sys.executable, "-c", program], pass_fds=[reader], check=True)
    try:
        assert any("os.fork()" in leak for leak in leaks.leaked_since(before, NO_GRACE))
    finally:
        os.close(writer)
        os.close(reader)


def test_a_thread_is_named(before: leaks.Snapshot) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left-behind")
    thread.start()
    try:
        assert any("left-behind" in leak for leak in leaks.leaked_since(before, NO_GRACE))
    finally:
        stop.set()
        thread.join()


def test_a_socket_is_named(before: leaks.Snapshot) -> None:
    with socket.socket(socket.AF_UNIX):
        assert any("socket" in leak for leak in leaks.leaked_since(before, NO_GRACE))


def test_a_session_folder_is_named(before: leaks.Snapshot) -> None:
    folder = leaks.session_root() / "session-left-behind"
    folder.mkdir(parents=True)
    try:
        assert leaks.leaked_since(before, NO_GRACE) == [f"folder {folder}"]
    finally:
        folder.rmdir()


def test_what_goes_away_in_time_is_no_leak(before: leaks.Snapshot) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    threading.Timer(0.05, stop.set).start()
    assert leaks.leaked_since(before) == []
    thread.join()
