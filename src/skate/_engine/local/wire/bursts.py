"""Tasks and small results that travel together: each is added to the message before it, if that is still queued."""

from __future__ import annotations

import time

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection
from skate._engine.local.wire.hub import Hub
from skate._engine.local.wire.interrupts import critical

TASK_BATCH = 128  # tasks of a burst that are sent together; submitting them takes less than `hub.LINGER`


class Bursts:
    """The tasks and the results that a process sends to the node."""

    def __init__(self, hub: Hub, connection: Connection) -> None:
        self._hub = hub
        self._connection = connection

    def submit(self, template: int, task: bytes, args: bytes, parent: bytes, depth: int) -> None:
        """Send a task, in one message with others of the same burst, template and parent."""
        hub, connection = self._hub, self._connection
        with hub.send_lock:
            last = connection.last(m.SubmitMany)
            if (
                last is not None
                and last.template == template
                and last.parent == parent
                and last.depth == depth
                and connection in hub.held_back
            ):
                last.tasks.append(task)
                last.args.append(args)
                if len(last.tasks) >= TASK_BATCH:
                    connection.sent_at = time.monotonic()
                    hub.flush_locked(connection)
                return
        hub.send(connection, m.SubmitMany(template, [task], [args], parent, depth))

    def post_value(self, task: bytes, value: bytes, started: float, seconds: float) -> None:
        """Queue the small result of a task, to be sent with what follows."""
        with self._hub.send_lock:
            last = self._connection.last(m.DoneMany)
            if last is None:
                self._connection.post(m.DoneMany([task], [value], [started], [seconds]))
            else:
                last.tasks.append(task)
                last.values.append(value)
                last.started.append(started)
                last.seconds.append(seconds)


critical(Bursts.submit, Bursts.post_value)
