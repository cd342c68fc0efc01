"""The template process: workers are forked from it, so that they start in milliseconds.

The node forks the template before it has any state. The template has imported what every worker needs, stays
single-threaded, and only forks on request and reports which of its children ended. When the node is killed, the
template kills all other processes of the session and removes its folders.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from typing import Any, NamedTuple, NoReturn

from skate._base.locations import IMPORT_ROOT
from skate._engine.common.platform import system
from skate._engine.common.process_limits import retry_with_deadline
from skate._engine.local.session.descendants import end_descendants
from skate._engine.local.session.folders import Session
from skate._engine.local.wire.frames import pack, unpack
from skate._engine.local.worker.fork_safety import renew_random_state
from skate._engine.local.worker.preloaded import (
    Key,
    PreloadedTemplates,
    Request,
    UnsafeToFork,
    import_for_job,
)

MESSAGE = 100_000  # bytes: the largest request; the kernel refuses messages over 200 KB
END = "end"  # the request to kill all workers and their descendants

# What most workers need sooner or later. The first worker must not wait for it, and imports what it needs itself.
_FOR_SECOND_WORKER = ("skate._engine.local.worker.actor_host", "skate._engine.local.client.job")
_WHEN_IDLE = (*_FOR_SECOND_WORKER, "asyncio")
IDLE_MS = 200  # without requests, before the template imports more

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from skate._engine.local.worker.template import main_of_spawned; main_of_spawned(sys.argv[2])"
)


def start_template(config: dict[str, Any]) -> tuple[socket.socket, int]:
    """Fork the template from the node; return the socket to it and its pid."""
    mine, its = system.message_pair()
    parent = os.getpid()
    pid = retry_with_deadline(os.fork)
    if pid:
        its.close()
        return mine, pid
    try:
        mine.close()
        # The template must not hold the node's sockets open: peers wait for their end.
        system.close_others((its.fileno(), config.get("life_fd", its.fileno())))
        _serve(its, config, parent)
    finally:
        os._exit(1)


def spawn_template(config: dict[str, Any]) -> tuple[socket.socket, int]:
    """Start a template with a new interpreter, because a running node cannot be forked."""
    import json

    mine, its = system.message_pair()
    keep = [its.fileno(), *([config["life_fd"]] if "life_fd" in config else [])]
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    text = json.dumps({**config, "socket": its.fileno(), "parent": os.getpid()})
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", _BOOT, IMPORT_ROOT, text],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, system.input_of_child(), 0)],
        )
    finally:
        for descriptor in keep:
            os.set_inheritable(descriptor, False)
        its.close()
    return mine, pid


def main_of_spawned(text: str) -> NoReturn:
    """Run as a template that was not forked from the node."""
    import json

    config = json.loads(text)
    sock = system.message_socket(config["socket"])
    system.adopt_input()
    for descriptor in (config["socket"], *([config["life_fd"]] if "life_fd" in config else [])):
        os.set_inheritable(descriptor, False)
    _serve(sock, config, config["parent"])


def _serve(sock: socket.socket, config: dict[str, Any], parent: int) -> NoReturn:
    system.lead()
    from skate._engine.local.worker import main as worker_main

    load_api()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake = _wake_on_child()
    if config.get("as_ray"):  # for preloaded modules; a worker uses the setting of its own job
        from skate._base import alias

        alias.install()
    if config.get("preload") and system.FORKS_AFTER_IMPORTS:
        # An import may hang; after the imports, the template outlives the node to clean up.
        system.die_with_parent(parent)
        for name in config["preload"]:
            _preload(name)
        system.survive_parent()
    gc.collect()
    gc.freeze()  # the pages of imported modules stay shared with the workers
    try:
        _fork_on_request(sock, wake, worker_main)
    except ConnectionError:  # the node is gone, with the messages that it had not read
        _bury(config)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def load_api() -> None:
    """Load the public names of the package; cloudpickle finds classes only in modules that are loaded."""
    package = sys.modules[__name__.partition(".")[0]]
    for name in package.__all__:
        getattr(package, name)


class _Wake(NamedTuple):
    """A pipe that becomes readable when a child has ended."""

    read: int
    write: int

    def close(self) -> None:
        """Close the pipe in a forked child.

        asyncio resets the wake-up descriptor in every child from Python 3.12 on.
        """
        signal.set_wakeup_fd(-1)
        os.close(self.read)
        os.close(self.write)


def _wake_on_child() -> _Wake:
    wake = _Wake(*system.pipe())
    signal.set_wakeup_fd(wake.write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def _fork_on_request(
    sock: socket.socket, wake: _Wake, worker_main: Any, *, is_warm: bool = False
) -> NoReturn:
    import select

    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake.read, select.POLLIN)

    def fork(request: Request, descriptors: list[int]) -> None:
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # at a limit, which must not affect running workers
            sock.send(pack(["refused", request["number"], error.errno]))
            return
        if pid == 0:
            wake.close()
            sock.close()
            warm.leave()
            _become_worker(worker_main, request, descriptors, me)
        sock.send(pack(["started", request["number"], pid]))

    def become_warm(key: Key, request: Request, its: socket.socket) -> NoReturn:
        wake.close()
        sock.close()
        _serve_warm(key, request, its, worker_main, parent)

    parent = os.getpid()
    warm = PreloadedTemplates(poller, become_warm, fork, sock.sendall, MESSAGE)
    idle = is_warm
    started = 0
    while True:
        ready = poller.poll(None if idle else IDLE_MS)
        if not ready:
            idle = True
            _preload_all(_WHEN_IDLE)
            continue
        for descriptor, _ in ready:
            if descriptor == wake.read:
                _drain(wake.read)
                _report(sock, warm)
                continue
            if descriptor != sock.fileno():
                warm.hear(descriptor)
                continue
            data, descriptors, _, _ = socket.recv_fds(sock, MESSAGE, 2)
            if not data:
                raise ConnectionError("the node is gone")
            request = unpack(data)
            if request == END:
                end_descendants()
                warm.forget()
                sock.send(pack([END, 0, 0]))
            elif "modules" in request:
                warm.make_or_drop(request["template"], request)
            elif system.FORKS_AFTER_IMPORTS and not is_warm and warm.serves(request):
                warm.start(request, descriptors)
            else:
                started += 1
                if started == 2 and not is_warm:
                    _preload_all(_FOR_SECOND_WORKER)
                fork(request, descriptors)
                for inherited in descriptors:
                    os.close(inherited)


def _serve_warm(key: Key, request: Request, sock: socket.socket, worker_main: Any, parent: int) -> NoReturn:
    """Run as a preloaded template until the template that it was forked from is gone."""
    try:
        system.die_with_parent(parent)
        system.lead()
        wake = _wake_on_child()
        gc.disable()  # imported modules contain hardly any garbage, and a collection would copy pages
        if isinstance(key, int):
            import_for_job(request)
            sock.send(pack(["ready", key, 0]))
        else:
            for name in key:
                _preload(name)
        gc.freeze()
        gc.enable()
        system.prepare_to_fork()
        _fork_on_request(sock, wake, worker_main, is_warm=True)
    except ConnectionError:
        end_descendants()
    except UnsafeToFork as error:
        sys.stderr.write(f"skate: {error}\n")
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def _bury(config: dict[str, Any]) -> NoReturn:
    """Clean up the session of a node that was killed."""
    end_descendants(session=config["folder"])
    Session(config["folder"], config["shm"]).remove()
    os._exit(0)


def _become_worker(
    worker_main: Any, request: dict[str, Any], descriptors: list[int], parent: int
) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        system.die_with_parent(parent)
        gc.unfreeze()
        renew_random_state()
        code = worker_main.main(request, descriptors)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _report(sock: socket.socket, warm: PreloadedTemplates) -> None:
    while (ended := system.reap()) is not None:
        pid, code = ended
        end = "orphaned" if warm.has_orphaned(pid) else "exited"
        # This may be an adopted orphan instead of a worker: the node knows.
        sock.send(pack([end, pid, code]))


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def _preload_all(names: tuple[str, ...]) -> None:
    for name in names:
        _preload(name)
    gc.freeze()


def _preload(name: str) -> None:
    import importlib

    try:
        importlib.import_module(name)
    except Exception as error:
        sys.stderr.write(f"skate: preloading {name} failed: {error!r}\n")
