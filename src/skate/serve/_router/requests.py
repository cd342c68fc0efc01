"""A request as its caller sees it: what is attempts to a replica, and what becomes of the answers."""

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

__all__ = ["WINDOW_SIZE", "OutgoingRequest", "StreamingRequest", "UnaryRequest"]

MAX_ATTEMPTS = 3
"""Two replicas may die at the same moment, and with them a request that was attempts from one to the other. One that is the
cause of it must not take all of them along."""

_numbers = itertools.count(1).__next__


class OutgoingRequest:
    """A request under way. Everything but the constructor happens on the loop of Serve.

    A request is attempts to one replica. It may be attempts to another one if the first did not begin with it; and, when
    `context.retry` says that it may run twice, if the first died.
    """

    # Most requests never change most of these.
    connection: Connection | None = None  # the replica that has it
    attempts = 0  # how many replicas may have begun with it
    is_done = False
    queued_at = 0.0  # when it began to wait
    queue_time_s = 0.0  # seconds in the queue
    force = False  # however busy the replica is
    target_replica_id = ""  # the replica that alone may answer it, if it was choose_replica before
    span: Any = None  # of its way to a replica, where traces are made

    def __init__(self, context: Context) -> None:
        self.id = _numbers()
        self.context = context

    @abstractmethod
    def send(self, connection: Connection) -> None:
        """Send the request to a replica."""

    @abstractmethod
    def receive(self, frame: Frame) -> bool:
        """Take an answer; returns whether it was the last."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """There will be no answer."""

    def abort(self, error: Exception) -> None:
        """End it with an error: no replica gets it, or none any more."""
        self.is_done = True
        self.fail_span(error)
        self.failed(error)

    def fail_span(self, error: Exception) -> None:
        """Take note, in the trace that it belongs to, that it does not get to a replica."""
        if self.span is not None:
            self.span.fail(error)
            self.span = None

    @property
    def can_retry(self) -> bool:
        """Whether another replica may answer instead: nothing of the answer has been call_args away yet."""
        return self.context.retry and self.attempts < MAX_ATTEMPTS

    def cancel(self) -> None:
        """Let the replica stop working on it, if one has it."""
        if self.connection is not None and not self.is_done:
            self.connection.link.send(Cancel(self.id))


class UnaryRequest(OutgoingRequest):
    """A call of a method that gives one value."""

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
        self.delivered_args = delivered_args  # the arguments themselves, when they travel by an actor call
        self.done = done
        if force:
            self.force = force

    def send(self, connection: Connection) -> None:
        """Send the call to a replica."""
        if self.delivered_args is not None:
            connection.deliver(self.id, *self.delivered_args)
        frame = Call(self.id, self.method, self.context, self.args, force=self.force)
        connection.link.send(frame, now=len(connection.ongoing) == 1)

    def receive(self, frame: Frame) -> bool:
        """Take the value or the error."""
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
        """Give the error to whoever waits."""
        self.done(self, error)


class StreamingRequest(OutgoingRequest):
    """A call of a generator. The reader may be in another thread or loop: it only takes items off the left."""

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
        self.items: deque[Result | None] = deque()  # None ends the stream
        self.items_arrived = Result()  # set when items came; then replaced
        self._taken = 0
        self._connection: Connection | None = None

    def send(self, connection: Connection) -> None:
        """Send the call to a replica."""
        self._connection = connection
        if self.delivered_args is not None:
            connection.deliver(self.id, *self.delivered_args)
        connection.link.send(Call(self.id, self.method, self.context, self.args, True, self.force))

    @property
    def can_retry(self) -> bool:
        """Whether another replica may answer instead: not once an item has been read."""
        return super().can_retry and not self.items and not self._taken

    def receive(self, frame: Frame) -> bool:
        """Take an item, an error, or the end."""
        if isinstance(frame, Item):
            item = Result()
            if frame.value is not None:
                item.set_packed(frame.value)
            else:
                assert self._connection is not None
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
                    f"The method '{self.method}' gives one value, not a stream: call it without "
                    "handle.options(stream=True), or let it yield."
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
        """Note that the reader has taken an item, and let the replica send further ones. On the loop of Serve."""
        self._taken += 1
        if self._taken % (WINDOW_SIZE // 2) == 0 and self._connection is not None and not self.is_done:
            self._connection.link.send(Grant(self.id, WINDOW_SIZE // 2))

    def _push(self, item: Result | None) -> None:
        self.items.append(item)
        items_arrived, self.items_arrived = self.items_arrived, Result()
        items_arrived.set_packed(b"")
