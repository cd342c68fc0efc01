"""Starting, killing and reaping worker processes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate._base.locations import IMPORT_ROOT, PACKAGE
from skate._engine.common import open_files
from skate._engine.common.platform import system
from skate._engine.common.process_limits import explain, is_refusal, start_thread
from skate._engine.local.session.descendants import KILL_TIMEOUT_S, end_descendants
from skate._engine.local.state.records import HOST, STARTING
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import pack, unpack
from skate._engine.local.worker.template import END, MESSAGE, spawn_template

if TYPE_CHECKING:
    from skate._engine.local.node.main import Node

MIN_FREE_DESCRIPTORS = 16  # descriptors that must be free to start a worker

# The fields of the job that a worker gets.
JOB_FIELDS = ("terminal", "sys_path", "own_path", "cwd", "runtime_env", "argv", "environ", "metadata")


class Processes:
    """The worker processes of a node: forked from a template, or spawned where forking is not possible."""

    def __init__(
        self, node: Node, config: dict[str, Any], template: tuple[socket.socket, int] | None
    ) -> None:
        self._node = node
        self._config = config
        self._pid_of: dict[int, int] = {}
        self._number_of: dict[int, int] = {}
        self._starting: set[int] = set()
        self._killed_while_starting: set[int] = set()
        self._spawned: dict[int, Any] = {}  # pid -> Popen
        self._preloaded: set[int] = set()  # the numbers of preloaded templates
        self._template: socket.socket | None = None
        self._template_pid = 0
        self._forks = template is not None  # whether workers are forked
        self._prepared: dict[str, dict[str, Any]] = {}
        self._preparing: dict[str, list[m.StartWorker]] = {}
        self._results: list[Callable[[], None]] = []
        self._wake_read, self._wake_write = system.pipe()
        node.watch(self._wake_read, self._collect)
        if template is not None:
            self._use_template(*template)

    def knows(self, number: int) -> bool:
        """Return whether the end of a worker will be reported here."""
        return number in self._pid_of or number in self._starting

    def _use_template(self, sock: socket.socket, pid: int) -> None:
        self._template, self._template_pid = sock, pid
        self._node.watch(sock.fileno(), self._from_template)

    # ------------------------------------------------------------ starting

    def start(self, message: m.StartWorker) -> None:
        """Start a worker, after preparing its environment if that is new."""
        environment = message.environment
        if not environment or environment in self._prepared:
            self._launch(message)
            return
        waiting = self._preparing.get(environment)
        if waiting is not None:
            waiting.append(message)
            return
        thread = threading.Thread(target=self._prepare, args=(environment,), daemon=True)
        try:
            start_thread(thread)
        except OSError as error:
            self._node.worker_refused(message.number, str(error.strerror))
            return
        self._preparing[environment] = [message]

    def _prepare(self, environment: str) -> None:
        """Prepare a runtime environment, in a thread because it may install packages."""
        from pathlib import Path

        from skate._engine.common.environments import default_cache_dir, prepare
        from skate._engine.local.client.job import environment_of

        try:
            original = environment_of(environment)
            made = prepare(original, default_cache_dir(), session_dir=Path(self._node.session.folder))
            ready = {
                "env_vars": dict(made.env_vars),
                "python": list(made.python) if made.python else None,
                "spawn": made.needs_new_process,
                "cwd": made.cwd,
                "sys_path": list(made.sys_path),
                "setup_hook": made.setup_hook,
                "preload": list(original.get("preload") or ()),
                "original": original,
            }
            self._results.append(lambda: self._environment_ready(environment, ready, ""))
        except Exception as error:
            text = str(error)
            self._results.append(lambda: self._environment_ready(environment, None, text))
        os.write(self._wake_write, b"x")

    def _collect(self) -> None:
        os.read(self._wake_read, 4096)
        while self._results:
            self._results.pop(0)()

    def _environment_ready(self, environment: str, ready: dict[str, Any] | None, error: str) -> None:
        waiting = self._preparing.pop(environment)
        if ready is None:
            self._node.handle_now(HOST, m.EnvironmentReady(environment, error))
            return
        self._prepared[environment] = ready
        for message in waiting:
            if message.number in self._node.machine.peers:
                self._launch(message)

    def _launch(self, message: m.StartWorker) -> None:
        machine = self._node.machine
        request = self._surroundings(message.job, message.environment)
        environment = request["environment"]
        request |= {
            "number": message.number,
            "job": message.job,
            "shm": self._node.session.shm,
            "node_id": machine.node_id,
            "namespace": machine.job_info[message.job].get("namespace") or "",
            "labels": machine.labels,
            "setup_hook": environment.get("setup_hook"),
            "template": message.template,
        }
        try:
            # For the pipes of this worker, the connections of all starting ones, and temporary files.
            open_files.check_room(len(self._starting) + MIN_FREE_DESCRIPTORS)
            descriptors = self._node.output.open(message.number)
        except OSError as error:
            self._node.worker_refused(message.number, open_files.describe_limit(error, "The node"))
            return
        self._starting.add(message.number)
        data = pack(request)
        try:
            if environment.get("spawn") or not self._forks or len(data) > MESSAGE:
                self._spawn(message.number, data, environment, descriptors)
            else:
                self._fork(data, descriptors)
        except OSError as error:
            self._not_started(message.number, error)
        for descriptor in descriptors:
            os.close(descriptor)

    def _surroundings(self, job: bytes, environment: str) -> dict[str, Any]:
        """Return what a process adopts before it imports modules for a job."""
        info = self._node.machine.job_info[job]
        return {
            "session": self._node.session.folder,
            "info": {key: info.get(key) for key in JOB_FIELDS},
            "environment": self._prepared.get(environment, {}),
        }

    def make_template(self, message: m.MakeTemplate) -> None:
        """Make a preloaded template, where workers are forked."""
        request = self._surroundings(message.job, message.environment)
        modules = [*(request["environment"].get("preload") or ()), *message.modules]
        data = pack({**request, "template": message.number, "modules": modules})
        if request["environment"].get("spawn") or not self._forks or len(data) > MESSAGE:
            self._node.handle_now(HOST, m.TemplateGone(message.number))
            return
        self._preloaded.add(message.number)
        try:
            self._fork(data, [])
        except OSError:  # at a limit of the system
            self._preloaded.discard(message.number)
            self._node.handle_now(HOST, m.TemplateGone(message.number))

    def drop_template(self, number: int) -> None:
        """End a preloaded template."""
        if number in self._preloaded and self._template is not None:
            self._fork(pack({"template": number, "modules": None}), [])

    def _fork(self, data: bytes, descriptors: list[int]) -> None:
        """Have the template start a worker; start a new template if there is none."""
        if self._template is None:
            self._use_template(*spawn_template(self._config))
        assert self._template is not None
        try:
            socket.send_fds(self._template, [data], descriptors)
        except OSError:
            return  # it is dead: the worker is started again when this is detected

    def _not_started(self, number: int, error: OSError) -> None:
        """Handle a failed start: retry later at a limit of the system, otherwise fail the worker."""
        self._starting.discard(number)
        self._killed_while_starting.discard(number)
        if is_refusal(error):
            self._node.worker_refused(number, explain(error.errno or 0))
        else:
            self._node.worker_ended(number, 1, [f"The process could not be started: {error}"])

    def _spawn(self, number: int, data: bytes, environment: dict[str, Any], descriptors: list[int]) -> None:
        """Start a worker with another interpreter, or where forking is unsafe."""
        import subprocess  # few sessions need it

        path = os.path.join(self._node.session.folder, f"start-{number}")
        with open(path, "wb") as file:
            file.write(data)
        program = os.path.join(PACKAGE, "_engine", "local", "worker", "spawned.py")
        command = [*(environment.get("python") or [sys.executable]), program, IMPORT_ROOT, path]
        variables = {**os.environ, **environment.get("env_vars", {})}
        if environment.get("cwd") and any(os.path.basename(word) == "uv" for word in command):
            # uv would look for a project in the folder of this program, not of the user's.
            variables.setdefault("UV_PROJECT", environment["cwd"])
        process = subprocess.Popen(
            command,
            stdin=system.input_of_child(),
            stdout=descriptors[0],
            stderr=descriptors[1],
            env=variables,
            cwd=environment.get("cwd") or None,
        )
        self._spawned[process.pid] = process
        self._started(number, process.pid)

    def _started(self, number: int, pid: int) -> None:
        self._starting.discard(number)
        self._pid_of[number] = pid
        self._number_of[pid] = number
        peer = self._node.machine.peers.get(number)
        if peer is not None and not peer.pid:
            peer.pid = pid
        if number in self._killed_while_starting:
            self.kill(number)

    def _from_template(self) -> None:
        assert self._template is not None
        try:
            data = self._template.recv(MESSAGE)
        except ConnectionResetError:  # raised once, before the last reports of a dead template
            return
        if not data:
            self._template_gone()
            return
        kind, first, second = unpack(data)
        if kind == "started":
            self._started(first, second)
        elif kind == "refused":
            self._not_started(first, OSError(second, os.strerror(second)))
        elif kind == "ready":
            self._node.handle_now(HOST, m.TemplateReady(first))
        elif kind == "gone":
            self._preloaded.discard(first)
            self._node.handle_now(HOST, m.TemplateGone(first))
        else:
            self._ended(first, second, orphaned=kind == "orphaned")

    def _template_gone(self) -> None:
        """Replace a template that was killed, and handle the end of its workers."""
        assert self._template is not None
        self._node.unwatch(self._template.fileno())
        self._template.close()
        self._template = None
        _exit_code(self._template_pid)
        try:
            self._use_template(*spawn_template(self._config))
        except OSError as error:
            if not is_refusal(error):
                raise
            self._node.machine.warn(
                f"Skate cannot start the process that workers are forked from. {explain(error.errno or 0)}"
            )
        preloaded, self._preloaded = self._preloaded, set()
        for number in preloaded:
            self._node.handle_now(HOST, m.TemplateGone(number))
        starting, self._starting = self._starting, set()
        for pid in [pid for pid in self._number_of if pid not in self._spawned]:
            self._signal(pid)
            self._ended(pid, _exit_code(pid), orphaned=True)
        for number in starting:
            self._killed_while_starting.discard(number)
            self._node.worker_ended(number, None)

    # ------------------------------------------------------------ ending

    def kill(self, number: int) -> None:
        """Kill a worker and the processes that it started."""
        pid = self._pid_of.get(number)
        if pid is None:
            if number in self._starting:
                self._killed_while_starting.add(number)
            return
        self._signal(pid)

    @staticmethod
    def _kill_group(pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # a new worker does not lead a group yet

    def _signal(self, pid: int) -> None:
        self._kill_group(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def reap(self) -> None:
        """Collect the children of the node itself: spawned workers, or a dead template."""
        for pid, process in list(self._spawned.items()):
            code = process.poll()
            if code is not None:
                del self._spawned[pid]
                self._kill_group(pid)
                self._ended(pid, code)

    def _ended(self, pid: int, code: int, *, orphaned: bool = False) -> None:
        """Report the end of a process; an orphan that was starting ended because its template did."""
        number = self._number_of.pop(pid, None)
        if number is None:
            return
        del self._pid_of[number]
        self._killed_while_starting.discard(number)
        try:
            os.unlink(os.path.join(self._node.session.folder, f"w{number}.sock"))
        except FileNotFoundError:
            pass
        peer = self._node.machine.peers.get(number)
        blameless = orphaned and peer is not None and peer.state is STARTING
        self._node.worker_ended(number, None if blameless else code)

    def kill_all(self) -> None:
        """Kill every worker and its descendants; wait until they are gone."""
        for pid in list(self._number_of):
            self._signal(pid)
        if self._template is not None:
            self._end_forked(self._template)
        for process in self._spawned.values():
            process.wait()
        end_descendants(spare=self._template_pid, session=self._node.session.folder)

    def _end_forked(self, template: socket.socket) -> None:
        """Have the template kill its descendants, as it would if the node were killed now."""
        try:
            template.settimeout(KILL_TIMEOUT_S)
            template.send(pack(END))
            while data := template.recv(MESSAGE):
                if unpack(data)[0] == END:
                    return
        except OSError:
            return  # it is dead or hangs: the node kills the rest

    def close(self) -> None:
        """Kill the template, which would otherwise clean up after the node."""
        if self._template is not None:
            os.kill(self._template_pid, signal.SIGKILL)
            _exit_code(self._template_pid)
        end_descendants(session=self._node.session.folder)


def _exit_code(pid: int) -> int:
    """Wait for a killed child, and return its exit code."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return -signal.SIGKILL
