"""What a Skate session may leave behind, and how to see it.

A `Snapshot` is taken while no session is open; later `leaked_since` names everything that is there and was
not there before: processes, threads, file descriptors, shared memory and session folders.
"""

from __future__ import annotations

import gc
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

_T = TypeVar("_T")

# The only place in the tests that knows where sessions live.
SESSION_GLOB = "*session-*"  # with those that are being made or deleted
HOME_LINK = ".session"  # in a session's folder in shared memory: leads to its session folder


def session_root() -> Path:
    """Return the folder that holds this user's session folders."""
    return Path(os.environ.get("SKATE_TMPDIR") or tempfile.gettempdir()) / f"skate-{os.getuid()}"


def shared_memory_root() -> Path:
    """Return the folder that holds this user's shared memory, one sub-folder a session."""
    return Path("/dev/shm") / f"skate-{os.getuid()}"


# Every process started from here inherits this variable, also one that detached itself from its parent.
MARKER = "SKATE_TEST_RUN"

# Shutdown is synchronous, but the kernel needs a moment to take a killed process off its table.
GRACE_SECONDS = 5.0

# Threads and processes are on their way out. Only after this time are they looked for among garbage: a collection in a
# process that has imported large libraries takes a second.
COLLECT_AFTER_SECONDS = 0.5

# Descriptors that Python, pytest or a library opens once and keeps.
_HARMLESS_FD = re.compile(
    r"/sys/|/dev/(null|zero|u?random|tty|pts/\d+)$|anon_inode:inotify$|.*\.(so|pyc?|ttf)\b"
)


def mark_this_run() -> str:
    """Set the marker that all descendants of this process inherit, and return its value."""
    return os.environ.setdefault(MARKER, uuid.uuid4().hex)


@dataclass(frozen=True)
class Snapshot:
    """Everything of this process that a session could leave behind."""

    processes: frozenset[psutil.Process]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    folders: frozenset[Path]

    @classmethod
    def take(cls) -> Snapshot:
        """Look at this process and its descendants as they are now."""
        return cls(
            processes=frozenset(_descendants()),
            threads=frozenset(_threads()),
            descriptors=frozenset(_descriptors()),
            folders=frozenset(_session_folders()),
        )


def leaked_since(before: Snapshot, grace: float = GRACE_SECONDS) -> list[str]:
    """Name what exists now and did not exist in `before`, after giving it `grace` seconds to go away."""
    began = time.monotonic()
    has_collected = False
    pause = 0.005
    while leaks := _difference(before, now := Snapshot.take()):
        waited = time.monotonic() - began
        ends_by_itself = bool(now.threads - before.threads or now.processes - before.processes)
        if not has_collected and (waited >= min(grace, COLLECT_AFTER_SECONDS) or not ends_by_itself):
            gc.collect()
            has_collected = True
        elif waited >= grace:
            break
        else:
            _wait_for(now.threads - before.threads, pause)
            pause = min(pause * 2, 0.2)
    return leaks


def _wait_for(threads: Iterable[threading.Thread], pause: float) -> None:
    """Wait until one of the threads has ended, or, without threads, for a moment."""
    for thread in threads:
        thread.join(COLLECT_AFTER_SECONDS)
        return
    time.sleep(pause)


def _difference(before: Snapshot, now: Snapshot) -> list[str]:
    return [
        *(f"process {_describe(p)}" for p in _new(now.processes, before.processes)),
        *(f"thread {t.name!r} (daemon={t.daemon})" for t in _new(now.threads, before.threads)),
        *(f"file descriptor {fd} -> {target}" for fd, target in _new(now.descriptors, before.descriptors)),
        *(f"folder {path}" for path in _new(now.folders, before.folders)),
    ]


def _new(now: frozenset[_T], before: frozenset[_T]) -> Iterable[_T]:
    return sorted(now - before, key=str)


def _threads() -> Iterable[threading.Thread]:
    """Find threads that Python code has started; TensorFlow, for one, has some of its own that call Python."""
    return (thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))


# Processes that are not of this run. They are looked at once: a machine has hundreds, and each test looks.
_others: set[int] = set()
_SETTLED_SECONDS = 1.0  # an age at which a process has its parent and its environment


def _descendants() -> list[psutil.Process]:
    """Return the processes with the marker of this run, and those that they have started."""
    me = psutil.Process()
    pids = set(psutil.pids()) - {me.pid}
    _others.intersection_update(pids)
    parents = {process: parent for pid in pids - _others for process, parent in _process_and_parent(pid)}
    marker = os.environ.get(MARKER)
    found = {me.pid} | {process.pid for process in parents if marker and _run_of(process, me) == marker}
    while more := {
        process.pid for process, parent in parents.items() if parent in found and process.pid not in found
    }:
        found |= more
    settled = time.time() - _SETTLED_SECONDS
    _others.update(
        process.pid for process in parents if process.pid not in found and process.create_time() < settled
    )
    return [process for process in parents if process.pid in found and _is_alive(process)]


def _process_and_parent(pid: int) -> Iterator[tuple[psutil.Process, int]]:
    try:
        process = psutil.Process(pid)
        yield process, process.ppid()
    except psutil.Error:
        return  # It ended while we looked.


def _run_of(process: psutil.Process, me: psutil.Process) -> str | None:
    """Return the marker of a process; None if it is older than this one, without the time to read its environment."""
    try:
        return process.environ().get(MARKER) if process.create_time() >= me.create_time() else None
    except (psutil.Error, OSError):
        return None  # Another user's process, or one that ended while we looked.


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_DEAD
    except psutil.Error:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            command = " ".join(process.cmdline())[:160] or process.name()
            return f"{process.pid} [{process.status()}, parent {process.ppid()}] {command}"
    except psutil.Error:
        return f"{process.pid} (ended meanwhile)"


def _descriptors() -> Iterable[tuple[int, str]]:
    folder = Path("/proc/self/fd")
    if not folder.exists():  # macOS
        yield from ((f.fd, f.path) for f in psutil.Process().open_files())
        return
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue  # The descriptor of the listing itself.
        if not _HARMLESS_FD.match(target):
            yield int(name), target


def _session_folders() -> Iterable[Path]:
    """Find folders of sessions of this run; /dev/shm also has those of other runs on this machine."""
    home = session_root()
    if home.is_dir():
        yield from home.glob(SESSION_GLOB)
    shared = shared_memory_root()
    if shared.is_dir():
        yield from (folder for folder in shared.glob(SESSION_GLOB) if _home_of(folder) in (home, None))


def _home_of(shared: Path) -> Path | None:
    """Return where the session folder of a folder in shared memory is, if it is recorded."""
    try:
        return Path(os.readlink(shared / HOME_LINK)).parent
    except OSError:
        return None
