"""The request channel of a process to the node: messages, and requests with replies."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any

from skate._base import errors as exceptions
from skate._engine.local.client.hold_reports import HoldReports
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.bursts import Bursts
from skate._engine.local.wire.frames import Connection, unpack
from skate._engine.local.wire.hub import Hub


class RequestChannel:
    """Sends messages to the node, with collected holds and releases, and dispatches incoming messages by their type."""

    def __init__(self, connection: Connection, reports: HoldReports) -> None:
        self.node = connection
        self.closed = ""  # the reason, once the session is over
        self.node_died = False
        self.hub = Hub(self._on_messages, self._on_closed, self.flush_reports)
        self.hub.add(connection)
        self._bursts = Bursts(self.hub, connection)
        self.handlers: dict[type, Callable[[Any], None]] = {
            m.Allocated: self._answered,
            m.Answer: self._answered,
        }
        self.on_other: Callable[[Connection, list[Any]], None] | None = None
        self.on_peer_closed: Callable[[Connection], None] | None = None
        self.on_node_closed: Callable[[], None] | None = None
        self.before_flush: Callable[[], None] | None = None  # adds the last reports
        self._reports = reports
        self._answers: dict[int, Any] = {}
        self._requests = itertools.count(1)

    def send(self, message: Any) -> None:
        """Send a message to the node, together with collected holds and releases."""
        if self.closed:
            raise self.closed_error()
        reports = self._reports
        if reports.holds:
            reports.post_holds(self._post)
        if reports.is_due():
            # After the message, which may hold the objects that are released here.
            self._post(message)
            reports.post_all(self._post)
            self.hub.flush(self.node)
        else:
            self.hub.send(self.node, message)
        if self.node.backlog:
            self.hub.throttle(self.node)

    def submit(self, template: int, task: bytes, args: bytes, parent: bytes, depth: int) -> None:
        """Send a task to the node, together with others that are submitted at the same time."""
        if self.closed:
            raise self.closed_error()
        reports = self._reports
        if reports.holds or reports.is_due():
            self.send(m.SubmitMany(template, [task], [args], parent, depth))
            return
        self._bursts.submit(template, task, args, parent, depth)
        if self.node.backlog:
            self.hub.throttle(self.node)

    def post_value(self, task: bytes, value: bytes, started: float, seconds: float) -> None:
        """Queue the small result of a task, together with those before it."""
        if self._reports.holds:
            self._reports.post_holds(self._post)
        self._bursts.post_value(task, value, started, seconds)

    def send_results(self) -> None:
        """Send queued results, with releases if there are many."""
        reports = self._reports
        if reports.is_due():
            reports.post_all(self._post)
        self.hub.flush(self.node)

    def post(self, message: Any) -> None:
        """Queue a message for the node, to be sent with the next one."""
        if self._reports.holds:
            # The message may release what they hold, such as the arguments of a task.
            self._reports.post_holds(self._post)
        self._post(message)

    def _post(self, message: Any) -> None:
        self.hub.post(self.node, message)

    def flush(self) -> None:
        """Send what is queued."""
        self.hub.flush(self.node)

    def flush_reports(self) -> None:
        """Report holds and releases to the node, and send what is queued."""
        if self.before_flush is not None:
            self.before_flush()
        reports = self._reports
        if self.closed:
            return
        if reports.dropped or reports.unpinned or reports.holds:
            while not reports.post_all(self._post):
                self.hub.flush(self.node)
        self.hub.flush(self.node)

    def ask(self, question: m.Question, subject: bytes = b"", text: str = "") -> Any:
        """Ask the node a question and wait for the answer."""
        return self.request(lambda number: m.Ask(number, question, subject, text))

    def request(self, make: Callable[[int], Any]) -> Any:
        """Send a message with a request number; return its answer, or raise its error."""
        answer = self.exchange(make)
        if answer.error:
            raise pickle.loads(answer.error)
        return unpack(answer.data)

    def exchange(self, make: Callable[[int], Any]) -> Any:
        """Send a message with a request number, and return the message that answers it."""
        number = next(self._requests)
        self.send(make(number))
        answers = self._answers
        self.hub.attend(lambda: number in answers or bool(self.closed))
        answer = answers.pop(number, None)
        if answer is None:
            raise self.closed_error()
        return answer

    def _on_messages(self, connection: Connection, messages: list[Any]) -> None:
        handlers = self.handlers
        for message in messages:
            handler = handlers.get(type(message))
            if handler is not None:
                handler(message)
            elif self.on_other is not None:
                self.on_other(connection, [message])

    def _on_closed(self, connection: Connection) -> None:
        if connection is self.node:
            self.node_died = True
            if not self.closed:
                self.closed = "the node process has died"
            if self.on_node_closed is not None:
                self.on_node_closed()
        elif self.on_peer_closed is not None:
            self.on_peer_closed(connection)

    def _answered(self, message: Any) -> None:
        self._answers[message.request] = message

    def abandon(self, reason: str) -> None:
        """Close the channel in a forked child, without any message on behalf of the parent."""
        self.closed = self.closed or reason
        self._reports.lock = threading.Lock()  # a thread of the parent may hold the old one
        self.hub.abandon()

    def closed_error(self) -> Exception:
        """Return the error for using a session that is over."""
        if self.node_died:
            return exceptions.NodeDiedError(
                "The node process of this session has died, and everything in it is lost. Call "
                "shutdown() and init() to start a new session."
            )
        return exceptions.RaySystemError(
            f"This session is over ({self.closed}). Call init() to start a new one; references of the old "
            "one are lost."
        )
