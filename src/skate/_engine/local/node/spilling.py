"""Moving objects between shared memory and disk, in a thread."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from skate._engine.common.open_files import is_exhausted
from skate._engine.common.platform import system
from skate._engine.common.process_limits import start_thread
from skate._engine.local.session import segments
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import is_full
from skate._engine.local.state.records import HOST
from skate._engine.local.wire import messages as m

CHUNK = 1 << 26


class SpillThread:
    """Copies files in a thread, which starts at the first request."""

    def __init__(self, session: Session, inject: Callable[[int, Any], None]) -> None:
        self._session = session
        self._inject = inject
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.descriptor, self._write = system.pipe()

    def submit(self, message: Any) -> None:
        """Execute a Spill, Restore or DeleteSpilled."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="skate-spill", daemon=True)
            try:
                start_thread(thread)
            except OSError as error:  # the next request tries again
                self._refuse(message, str(error.strerror))
                return
            self._thread = thread
        self._requests.put(message)

    def _refuse(self, message: Any, why: str) -> None:
        if isinstance(message, m.DeleteSpilled):
            self._do(message)
            return
        if isinstance(message, m.Spill):
            self._results.put(m.Spilled(message.id, why))
        else:  # the object can be read from disk
            self._results.put(m.Restored(message.id, message.segment, why, no_room=True))
        os.write(self._write, b"x")

    def collect(self) -> None:
        """Pass the results to the machine."""
        os.read(self.descriptor, 4096)
        while not self._results.empty():
            self._inject(HOST, self._results.get())

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join(10)

    def _run(self) -> None:
        while True:
            message = self._requests.get()
            if message is None:
                return
            result = self._do(message)
            if result is not None:
                self._results.put(result)
                os.write(self._write, b"x")

    def _do(self, message: Any) -> Any:
        disk = self._session.path_of(segments.on_disk(message.id.hex()))
        if isinstance(message, m.DeleteSpilled):
            try:
                os.unlink(disk)
            except OSError:
                pass  # an error of the disk must not end this thread: the end of the session removes the file
            return None
        memory = self._session.path_of(message.segment)
        if isinstance(message, m.Spill):
            error = _copy(memory, disk, message.size)
            return m.Spilled(message.id, str(error or ""))
        error = _copy(disk, memory, message.size)
        no_room = error is not None and (is_full(error) or is_exhausted(error))
        return m.Restored(message.id, message.segment, str(error or ""), no_room)


def _copy(source: str, target: str, size: int) -> OSError | None:
    """Copy a file; return the error, if any, after removing the partial copy."""
    try:
        with open(source, "rb") as read, open(target, "wb") as write:
            if size:
                system.reserve(write.fileno(), size)
            position = 0
            while position < size:
                sent = system.copy(write.fileno(), read.fileno(), position, min(CHUNK, size - position))
                if sent == 0:
                    raise OSError(f"{source} is shorter than {size} bytes")
                position += sent
    except OSError as error:
        try:
            os.unlink(target)
        except OSError:
            pass
        return error
    return None
