"""The request channel of a process to the node: messages, and requests with replies."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

from skate._base import errors as exceptions
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection, unpack
from skate._engine.local.wire.hub import Hub


class RequestChannel:
    """Sends messages to the node, and dispatches incoming messages by their type."""

    def __init__(self, connection: Connection) -> None:
        self.node = connection
        self.closed = ""  # the reason, once the session is over
        self.node_died = False
        self.hub = Hub(self._on_messages, self._on_closed, self.flush_garbage)
        self.hub.add(connection)
        self.handlers: dict[type, Callable[[Any], None]] = {
            m.Allocated: self._answered,
            m.Answer: self._answered,
        }
        self.on_other: Callable[[Connection, list[Any]], None] | None = None
        self.on_peer_closed: Callable[[Connection], None] | None = None
        self.on_node_closed: Callable[[], None] | None = None
        self._answers: dict[int, Any] = {}
        self._requests = itertools.count(1)

    def flush_garbage(self) -> None:
        """Report dropped references and pins to the node."""

    def send(self, message: Any) -> None:
        """Send a message to the node."""
        if self.closed:
            raise self.closed_error()
        self.hub.send(self.node, message)
        if self.node.backlog:
            self.hub.throttle(self.node)

    def ask(self, question: str, subject: bytes = b"", text: str = "") -> Any:
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
