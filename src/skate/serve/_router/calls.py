"""A request as its caller sees it: what is sent to a replica, and what becomes of the answers."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate.serve._wire.frames import Call, Cancel, Context, End, Fail, Frame, Reply

if TYPE_CHECKING:
    from skate.serve._router.line import Line

__all__ = ["Outgoing", "ValueCall"]

MOST_SENDS = 3
"""Two replicas may die at the same moment, and with them a request that was sent from one to the other. One that is the
cause of it must not take all of them along."""

_numbers = itertools.count(1).__next__


class Outgoing:
    """A request under way. Everything but the constructor happens on the loop of Serve.

    A request is sent to one replica. It may be sent to another one if the first did not begin with it; and, when
    `context.retry` says that it may run twice, if the first died.
    """

    # Most requests never change most of these.
    line: Line | None = None  # the replica that has it
    sent = 0  # how many replicas may have begun with it
    is_done = False
    arrived = 0.0  # when it began to wait
    waited = 0.0  # seconds in the queue
    always = False  # however busy the replica is
    bound_to = ""  # the replica that alone may answer it, if it was chosen before
    span: Any = None  # of its way to a replica, where traces are made

    def __init__(self, context: Context) -> None:
        self.id = _numbers()
        self.context = context

    @abstractmethod
    def send(self, line: Line) -> None:
        """Send the request to a replica."""

    @abstractmethod
    def receive(self, frame: Frame) -> bool:
        """Take an answer; returns whether it was the last."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """There will be no answer."""

    def turn_away(self, error: Exception) -> None:
        """End it with an error: no replica gets it, or none any more."""
        self.is_done = True
        self.note_lost(error)
        self.failed(error)

    def note_lost(self, error: Exception) -> None:
        """Take note, in the trace that it belongs to, that it does not get to a replica."""
        if self.span is not None:
            self.span.lost(error)
            self.span = None

    @property
    def can_start_over(self) -> bool:
        """Whether another replica may answer instead: nothing of the answer has been given away yet."""
        return self.context.retry and self.sent < MOST_SENDS

    def cancel(self) -> None:
        """Let the replica stop working on it, if one has it."""
        if self.line is not None and not self.is_done:
            self.line.link.send(Cancel(self.id))


class ValueCall(Outgoing):
    """A call of a method that gives one value."""

    def __init__(
        self,
        context: Context,
        method: str,
        args: bytes | None,
        heavy: tuple[tuple[Any, ...], dict[str, Any]] | None,
        done: Callable[[ValueCall, Reply | Exception | bytes], None],
        *,
        always: bool = False,
    ) -> None:
        super().__init__(context)
        self.method = method
        self.args = args
        self.heavy = heavy  # the arguments themselves, when they travel by an actor call
        self.done = done
        if always:
            self.always = always

    def send(self, line: Line) -> None:
        """Send the call to a replica."""
        if self.heavy is not None:
            line.deliver(self.id, *self.heavy)
        frame = Call(self.id, self.method, self.context, self.args, always=self.always)
        line.link.send(frame, now=len(line.under_way) == 1)

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
