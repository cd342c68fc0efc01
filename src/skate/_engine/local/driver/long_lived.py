"""Long-lived nodes, which outlive the program that starts them: start, find, stop.

A long-lived node differs from a private one only in that no driver owns it. The file `current` in the folder of the
sessions names the session of the latest one; the lock in a session's folder shows whether its node is alive.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skate._base import tracing
from skate._engine.common.platform import system
from skate._engine.local.driver.launcher import fill_standard_streams, node_config, spawn_node
from skate._engine.local.session import folders as sessions
from skate._engine.local.session.node_records import (
    NodeRecord,
    current,
    forget,
    nodes,
    read_record,
    write_current,
)

READY = b"ready"
START_TIMEOUT_S = 30.0
GRACE_SECONDS = 16.0
KILL_TIMEOUT_S = 5.0
REMEDY = "Start one with `skate start`, or call init() without an address to run a private one."


def start(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    custom: dict[str, float] | None = None,
    memory: float | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    preload: list[str] | None = None,
    tracing_hook: str | None = None,
) -> NodeRecord:
    """Start a long-lived node; return when it accepts drivers.

    Raises:
        RuntimeError: A node is running already, or the new one did not start.
    """
    config = node_config(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        custom=custom,
        memory=memory,
        labels=labels,
        object_store_memory=object_store_memory,
        preload=[*(preload or []), *([tracing.SDK] if tracing_hook else ())],
    )
    config[tracing.HOOK] = tracing_hook or ""
    fill_standard_streams()
    with _one_at_a_time():
        running = current()
        if running is not None:
            raise RuntimeError(
                f"A node is already running ({running.process}, {running.folder}). Attach to it with "
                'skate.init(address="auto"), or end it with `skate stop`'
                + ("." if running.pid else " there, or set SKATE_TMPDIR to a folder of this container's own.")
            )
        session = sessions.create()
        try:
            _spawn(session, {**config, "private": False, "detach": True})
            record = read_record(session.folder)
            if record is None:
                raise RuntimeError("The node ended immediately after its start.")
        except BaseException:
            session.remove()
            raise
        write_current(session.folder)
        return record


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    descriptor = os.open(os.path.join(sessions.root(), "start.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _spawn(session: sessions.Session, config: dict[str, Any]) -> None:
    """Start the process and wait until it listens."""
    read, write = os.pipe()
    try:
        pid, log = spawn_node(session, config, {"ready_fd": write})
    finally:
        os.close(write)
    try:
        os.waitpid(pid, 0)  # it forks again and exits, so that the node has no parent to wait for it
        said = b""
        deadline = time.monotonic() + START_TIMEOUT_S
        while said != READY:
            if not wait_readable(read, deadline - time.monotonic()):
                raise RuntimeError(f"The node did not start within {START_TIMEOUT_S:g} s.{_log(log)}")
            data = os.read(read, len(READY))
            if not data:
                raise RuntimeError(f"The node did not start.{_log(log)}")
            said += data
    finally:
        os.close(read)
        os.close(log)


def _log(descriptor: int) -> str:
    text = os.pread(descriptor, 4000, 0).decode("utf-8", "replace").strip()
    return f" It printed:\n{text}" if text else ""


def find(address: str, *, observer: bool = False, long_lived: bool = False) -> str:
    """Return the session folder of the node with this address.

    Args:
        address: "auto" for the node of `skate start`, or else the private node of the program that started this one;
            or a session's folder.
        observer: Whether "auto" may also be the private node of any running program, which can be observed but ends
            with that program.
        long_lived: Whether "auto" must be the node of `skate start`.

    Raises:
        ConnectionError: No such node is running, or it cannot be used from here.
    """
    named = os.environ.get("SKATE_ADDRESS", "")
    if address == "auto" and os.path.isabs(named):
        address = named  # set for submitted jobs
    if address == "auto":
        node = current()
        if node is None and long_lived:
            raise ConnectionError(
                "No long-lived Skate node is running for this user, and the node of a program ends with the program. "
                "Start one with `skate start`."
            )
        node = node or _of_ancestor()
        if node is None and observer:
            node = _only_private()
        if node is None:
            raise ConnectionError(f"No Skate node is running for this user. {REMEDY}")
    elif os.path.isabs(address) or os.path.isdir(address):
        node = read_record(os.path.abspath(address))
        if node is None:
            raise ConnectionError(f"No Skate node runs in {address}. {REMEDY}")
    else:
        raise ConnectionError(
            f"{address!r} is not the address of a Skate node, which is 'auto' or a session's folder on this machine. A "
            "Ray cluster has an address of the form 'ray://host:port'."
        )
    _check_python(node)
    if not observer:
        _check_memory(node)
    return node.folder


def _of_ancestor() -> NodeRecord | None:
    """Return the private node of the nearest ancestor of this process."""
    import psutil

    private: dict[int, NodeRecord] = {}
    for node in nodes():
        try:
            if node.private and node.pid:
                private[psutil.Process(node.pid).ppid()] = node
        except psutil.NoSuchProcess:
            continue  # it has just ended
    ancestors = psutil.Process().parents() if private else []
    return next((private[each.pid] for each in ancestors if each.pid in private), None)


def _only_private() -> NodeRecord | None:
    found = nodes()
    if len(found) > 1:
        listed = "\n".join(f"  {node.folder} ({node.process})" for node in found)
        raise ConnectionError(
            f"{len(found)} nodes of programs are running; choose one as the address:\n{listed}"
        )
    return found[0] if found else None


def _check_python(node: NodeRecord) -> None:
    mine = sessions.python_version()
    if mine.split(".")[:2] != node.python.split(".")[:2]:
        raise ConnectionError(
            f"The node in {node.folder} runs Python {node.python}, and this is Python {mine}: they cannot "
            "exchange values. Start the node with the same Python as its programs."
        )


def _check_memory(node: NodeRecord) -> None:
    shm = sessions.at(node.folder).shm
    if not os.path.isdir(shm):
        raise ConnectionError(
            f"The node in {node.folder} runs in another container, whose shared memory ({shm}) is not visible "
            "here. Let both containers share it, or start a node in this one with another SKATE_TMPDIR."
        )


# ------------------------------------------------------------ stopping


def stop(*, force: bool = False, grace: float = GRACE_SECONDS, private: bool = False) -> list[NodeRecord]:
    """End the long-lived nodes of this user and all their processes; return when they are gone.

    Nodes in other containers keep running.

    Args:
        force: Kill without asking first.
        grace: Seconds for a node to end by itself.
        private: Also end the nodes of running programs.

    Returns:
        The nodes that were running.
    """
    running = [node for node in nodes() if node.pid and (private or not node.private)]
    for node in running:
        end(node, force=force, grace=grace)
        forget(node.folder)
    sessions.sweep()
    return running


def end(node: NodeRecord, *, force: bool = False, grace: float = GRACE_SECONDS) -> None:
    """End one node and all its processes."""
    import psutil

    family: list[Any] = []
    session = sessions.at(node.folder)
    try:
        process = psutil.Process(node.pid)
        # Then the pid is still the node's, and psutil identifies it from now on.
        if read_record(node.folder) == node:
            family = process.children(recursive=True)
            if not force:
                process.terminate()
                force = not _has_ended(process, grace)
            if force:
                family = list({*family, *process.children(recursive=True)})
                process.kill()
                _has_ended(process, KILL_TIMEOUT_S)
    except psutil.NoSuchProcess:
        pass  # it ended by itself
    # Workers die with their node; their detached descendants are killed here.
    for each in family:
        try:
            each.kill()
            _has_ended(each, KILL_TIMEOUT_S)
        except psutil.NoSuchProcess:
            continue
    session.remove()


def wait(node: NodeRecord) -> None:
    """Wait for the end of a node."""
    import psutil

    try:
        while not _has_ended(psutil.Process(node.pid), 3600.0):
            continue
    except psutil.NoSuchProcess:
        return


def _has_ended(process: Any, timeout: float) -> bool:
    """Wait for the end of any process; return False after the timeout."""
    try:
        descriptor = system.exit_descriptor(process.pid)
    except ProcessLookupError:
        return True
    if descriptor < 0:
        return system.wait_for_end(process.pid, timeout)
    try:
        return wait_readable(descriptor, timeout)
    finally:
        os.close(descriptor)


def wait_readable(descriptor: int, timeout: float) -> bool:
    """Wait until a descriptor is readable; return False after the timeout."""
    import select

    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, timeout) * 1000))
