"""Requests on the caller's side: how they are sent, and where their answers go."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate._api.payloads import unpack
from skate.serve._router.result import Result
from skate.serve._wire.frames import Call, Cancel, Context, End, Fail, Frame, Grant, Item, Reply
from skate.serve._wire.window import WINDOW_SIZE

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection

__all__ = ["OutgoingRequest", "StreamingRequest", "UnaryRequest"]

MAX_ATTEMPTS = 3
"""The most replicas that a request is sent to.

It exceeds two because two replicas may die at the same moment. It is bounded so that a request which kills its replica
does not kill all of them.
"""

_numbers = itertools.count(1).__next__


class OutgoingRequest:
    """A request on its way to a replica and back.

    The router sends it to one replica. It sends it to another one if the first rejected it or, when `context.retry`
    allows it to run twice, if the first died. Everything except the constructor runs on the Serve event loop.
    """

    # Class attributes hold the defaults, which most requests never change.
    connection: Connection | None = None  # to the replica that processes the request
    attempts = 0  # number of replicas that may have begun to process it
    is_done = False
    queued_at = 0.0  # when it entered the queue; 0.0 outside the queue
    queue_time_s = 0.0
    force = False  # whether a full replica has to accept it
    target_replica_id = ""  # the only replica that may process it; "" for any
    span: Any = None  # the tracing span of the routing, if any

    def __init__(self, context: Context) -> None:
        self.id = _numbers()
        self.context = context

    @abstractmethod
    def send(self, connection: Connection) -> None:
        """Send the request over a connection."""

    @abstractmethod
    def receive(self, frame: Frame) -> bool:
        """Handle an answer, and return whether it was the last one."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Handle a failure: no answer will arrive."""

    def abort(self, error: Exception) -> None:
        """End the request with an error."""
        self.is_done = True
        self.fail_span(error)
        self.failed(error)

    def fail_span(self, error: Exception) -> None:
        """End the routing span with an error."""
        if self.span is not None:
            self.span.fail(error)
            self.span = None

    @property
    def can_retry(self) -> bool:
        """Whether the request may be sent to another replica after the first one died."""
        return self.context.retry and self.attempts < MAX_ATTEMPTS

    def cancel(self) -> None:
        """Tell the replica, if any, to stop processing the request."""
        if self.connection is not None and not self.is_done:
            self.connection.link.send(Cancel(self.id))


class UnaryRequest(OutgoingRequest):
    """A call of a method that returns one value."""

    def __init__(
        self,
        context: Context,
        method: str,
        args: bytes | None,
        delivered_args: tuple[tuple[Any, ...], dict[str, Any]] | None,
        done: Callable[[UnaryRequest, Reply | Exception | bytes], None],
        *,
        force: bool = False,
    ) -> None:
        super().__init__(context)
        self.method = method
        self.args = args
        self.delivered_args = delivered_args  # unpacked arguments, delivered by an actor call
        self.done = done
        if force:
            self.force = force

    def send(self, connection: Connection) -> None:
        """Send the call over a connection."""
        if self.delivered_args is not None:
            connection.deliver(self.id, *self.delivered_args)
        frame = Call(self.id, self.method, self.context, self.args, force=self.force)
        connection.link.send(frame, now=len(connection.ongoing) == 1)

    def receive(self, frame: Frame) -> bool:
        """Handle the value or the error."""
        if isinstance(frame, Reply):
            self.done(self, frame)
        elif isinstance(frame, Fail):
            self.done(self, frame.error)
        elif isinstance(frame, End):
            self.done(self, RuntimeError("the replica answered a call for one value with a stream"))
        else:
            return False
        return True

    def failed(self, error: Exception) -> None:
        """Pass the error to the caller."""
        self.done(self, error)


class StreamingRequest(OutgoingRequest):
    """A call of a generator method.

    The reader may run in another thread or event loop: it only pops items from the left.
    """

    def __init__(
        self,
        context: Context,
        method: str,
        args: bytes | None,
        delivered_args: tuple[tuple[Any, ...], dict[str, Any]] | None,
    ) -> None:
        super().__init__(context)
        self.method = method
        self.args = args
        self.delivered_args = delivered_args
        self.items: deque[bytes | Result | None] = deque()  # packed values; None ends the stream
        self.items_arrived = Result()  # set when an item arrives that is waited for, and then replaced
        self.is_awaited = False  # the reader sets it before it checks whether there are items
        self._taken = 0
        self._connection: Connection | None = None

    def send(self, connection: Connection) -> None:
        """Send the call over a connection."""
        self._connection = connection
        if self.delivered_args is not None:
            connection.deliver(self.id, *self.delivered_args)
        connection.link.send(Call(self.id, self.method, self.context, self.args, True, self.force))

    @property
    def can_retry(self) -> bool:
        """Whether the request may be sent to another replica: only before the first item."""
        return super().can_retry and not self.items and not self._taken

    def receive(self, frame: Frame) -> bool:
        """Handle an item, an error, or the end of the stream."""
        if isinstance(frame, Item):
            if frame.value is not None:
                self._push(frame.value)
            else:
                assert self._connection is not None
                item = Result()
                self._connection.fetch_result(item, self.id, frame.number)
                self._push(item)
            return False
        if isinstance(frame, Fail):
            self.failed(unpack(frame.error))
        elif isinstance(frame, End):
            self._push(None)
        elif isinstance(frame, Reply):
            self.failed(
                TypeError(
                    f"The method '{self.method}' returns one value, not a stream: call it without "
                    "handle.options(stream=True), or make it a generator."
                )
            )
        else:
            return False
        return True

    def failed(self, error: Exception) -> None:
        """End the stream with an error."""
        item = Result()
        item.set_error(error)
        self.items.append(item)
        self._push(None)

    def taken(self) -> None:
        """Handle that the reader took an item: grant the replica further ones. On the Serve event loop."""
        self._taken += 1
        if self._taken % (WINDOW_SIZE // 2) == 0 and self._connection is not None and not self.is_done:
            self._connection.link.send(Grant(self.id, WINDOW_SIZE // 2))

    def _push(self, item: bytes | Result | None) -> None:
        self.items.append(item)
        if self.is_awaited:
            self.is_awaited = False
            items_arrived, self.items_arrived = self.items_arrived, Result()
            items_arrived.set_packed(b"")
