"""Starting a node from a driver, with as few imports as possible."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skate._base import variables
from skate._base.locations import IMPORT_ROOT
from skate._engine.common.machine_facts import node_labels, resources, store_budget
from skate._engine.common.platform import system
from skate._engine.common.process_limits import retry_with_deadline
from skate._engine.local.session import folders as sessions
from skate._engine.local.session.descendants import KILL_TIMEOUT_S, SESSION, end_members
from skate._engine.local.wire.interrupts import held_back

if TYPE_CHECKING:
    from skate._engine.local.driver.driver import LocalDriver

NODE_EXIT_TIMEOUT_S = 10.0

# Ray's names and defaults; given in `_system_config`, or in environment variables (RAY_memory_usage_threshold).
MONITOR_DEFAULTS = {
    "memory_usage_threshold": 0.95,  # share of all memory
    "memory_monitor_refresh_ms": 250,  # 0 disables the monitor
    "task_oom_retries": -1,  # unlimited
}

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from skate._engine.local.node.boot import main; main(sys.argv[2])"
)


class NodeProcess:
    """A node that this driver has started and will end."""

    def __init__(self, session: sessions.Session, sock: socket.socket, pid: int, log: int, life: int) -> None:
        self.session = session
        self.sock = sock
        self.pid = pid
        self._log = log
        self._life = life  # a pipe that ends with the last process of the session

    def log(self) -> str:
        """Return the end of the node's output, even after its session is gone."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 4000, max(0, size - 4000)).decode("utf-8", "replace")

    def wait(self, timeout: float) -> None:
        """Wait for the end of the node, and kill it after the timeout; then clean up the session."""
        deadline = time.monotonic() + timeout
        killed = False
        try:
            descriptor = system.exit_descriptor(self.pid)
        except ProcessLookupError:
            descriptor = -1
        while True:
            try:
                pid, _ = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                break
            left = deadline - time.monotonic()
            if left <= 0 and not killed:
                killed = True
                os.kill(self.pid, signal.SIGKILL)
                left = 5.0
            _wait_readable(descriptor, max(0.01, left))
        if descriptor >= 0:
            os.close(descriptor)
        os.close(self._log)
        self._wait_for_others()
        if self.session.is_left:
            self.session.remove()

    def abandon(self) -> None:
        """End a node that was never used."""
        self.sock.close()
        self.wait(NODE_EXIT_TIMEOUT_S)

    def _wait_for_others(self) -> None:
        """Wait for the other processes of the session; kill them if neither the node nor its template did."""
        if not _wait_readable(self._life, KILL_TIMEOUT_S) or self.session.is_left:
            end_members(self.session.folder)
        os.close(self._life)


def _wait_readable(descriptor: int, timeout: float) -> bool:
    if descriptor < 0:
        time.sleep(0.005)  # no such descriptor on this system: waitpid has no timeout
        return False
    import select

    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


def node_config(
    *,
    num_cpus: float | None,
    num_gpus: float | None,
    custom: dict[str, float] | None,
    memory: float | None,
    labels: dict[str, str] | None,
    object_store_memory: int | None,
    preload: list[str],
    system_config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the configuration of a node, with the machine's resources as defaults."""
    total, devices = resources(num_cpus, num_gpus, custom, memory)
    budget, warning = store_budget(sessions.shm_root(), object_store_memory)
    if warning:
        import logging

        logging.getLogger("skate").warning(warning)
    total["object_store_memory"] = float(budget)
    return {
        "resources": total,
        "devices": devices,
        "labels": node_labels(labels, total),
        "node_id": os.urandom(28).hex(),
        "budget": budget,
        "preload": preload,
        "auto_preload": variables.own_flag("AUTO_PRELOAD", True),
        "fork": forks_workers(),
        "memory_monitor": monitor_settings(system_config),
    }


def forks_workers() -> bool:
    """Return whether workers are forks of the template, or new interpreters as `SKATE_START=spawn` asks.

    Raises:
        ValueError: The variable has another value.
    """
    chosen = os.environ.get("SKATE_START") or "fork"
    if chosen not in ("fork", "spawn"):
        raise ValueError(f"SKATE_START is {chosen!r}: set it to fork or spawn.")
    return chosen == "fork"


def monitor_settings(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the settings of the memory monitor, from `_system_config`, the environment, and the defaults.

    Raises:
        ValueError: A setting is not a number, or out of range.
    """
    found = {}
    for name, default in MONITOR_DEFAULTS.items():
        if name not in (given or {}):
            found[name] = variables.number(name, default)
            continue
        try:
            found[name] = float((given or {})[name])
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number, not {(given or {})[name]!r}") from None
    if not 0.0 <= found["memory_usage_threshold"] <= 1.0:
        raise ValueError(
            f"memory_usage_threshold is a share of memory from 0 to 1, not {found['memory_usage_threshold']:g}"
        )
    return found


def start_node(config: dict[str, Any], temp_dir: str | None = None) -> NodeProcess:
    """Start a node as a child process, connected by a socket pair; `temp_dir` is for the files of its session."""
    fill_standard_streams()
    session = sessions.create(temp_dir)
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    life, held = os.pipe()
    try:
        descriptors = {"driver_fd": its.fileno(), "life_fd": held}
        pid, log = spawn_node(session, {**config, "private": True}, descriptors)
    except BaseException:
        session.remove()
        mine.close()
        os.close(life)
        raise
    finally:
        its.close()
        os.close(held)
    return NodeProcess(session, mine, pid, log, life)


def fill_standard_streams() -> None:
    """Open the null device in place of missing standard streams.

    Otherwise a socket or a lock would get the number of a stream, and a child process would use it as one.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def spawn_node(
    session: sessions.Session, config: dict[str, Any], descriptors: dict[str, int]
) -> tuple[int, int]:
    """Start the process of a node with inherited descriptors; return its pid and the descriptor of its log."""
    for descriptor in (*descriptors.values(), *session.claims):
        os.set_inheritable(descriptor, True)
    config = {**config, **session._asdict(), **descriptors}
    log = os.open(os.path.join(session.logs, "node.log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = retry_with_deadline(
            lambda: os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", _BOOT, IMPORT_ROOT, json.dumps(config)],
                {**os.environ, SESSION: session.folder},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigmask=(),  # the calling thread may block signals that the node needs
            )
        )
    except BaseException:
        os.close(log)
        raise
    finally:
        session.close()  # the node holds the claims now
    return pid, log


def start(
    config: dict[str, Any],
    *,
    namespace: str | None,
    runtime_env: dict[str, Any],
    log_to_driver: bool,
    metadata: dict[str, Any],
    temp_dir: str | None = None,
) -> LocalDriver:
    """Start a private node with the configuration from `node_config`, and attach to it."""
    extra = {"log_to_driver": log_to_driver, "metadata": metadata}
    node = None
    try:
        with held_back():  # an interrupted import may leave msgspec in a state in which it crashes
            node = start_node(config, temp_dir)
            from skate._engine.local.driver import driver
        return driver.attach(node, namespace, runtime_env, extra)
    except BaseException:
        if node is not None:
            node.abandon()
        raise
