"""A call whose answers come one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from skate._api.payloads import unpack
from skate.serve._router.calls import Outgoing
from skate.serve._router.outcome import Outcome
from skate.serve._wire.frames import Call, Context, End, Fail, Frame, Grant, Item, Reply
from skate.serve._wire.window import PARTS

if TYPE_CHECKING:
    from skate.serve._router.line import Line

__all__ = ["WINDOW", "StreamCall"]

WINDOW = PARTS
"""How many answers a replica may be ahead of whoever reads them."""


class StreamCall(Outgoing):
    """A call of a generator. The reader may be in another thread or loop: it only takes items off the left."""

    def __init__(
        self,
        context: Context,
        method: str,
        args: bytes | None,
        heavy: tuple[tuple[Any, ...], dict[str, Any]] | None,
    ) -> None:
        super().__init__(context)
        self.method = method
        self.args = args
        self.heavy = heavy
        self.items: deque[Outcome | None] = deque()  # None ends the stream
        self.news = Outcome()  # set when items came; then replaced
        self._taken = 0
        self._line: Line | None = None

    def send(self, line: Line) -> None:
        """Send the call to a replica."""
        self._line = line
        if self.heavy is not None:
            line.deliver(self.id, *self.heavy)
        line.link.send(Call(self.id, self.method, self.context, self.args, True, self.always))

    @property
    def can_start_over(self) -> bool:
        """Whether another replica may answer instead: not once an item has been read."""
        return super().can_start_over and not self.items and not self._taken

    def receive(self, frame: Frame) -> bool:
        """Take an item, an error, or the end."""
        if isinstance(frame, Item):
            item = Outcome()
            if frame.value is not None:
                item.set_packed(frame.value)
            else:
                assert self._line is not None
                self._line.fetch_into(item, self.id, frame.number)
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
        item = Outcome()
        item.set_error(error)
        self.items.append(item)
        self._push(None)

    def taken(self) -> None:
        """Note that the reader has taken an item, and let the replica send further ones. On the loop of Serve."""
        self._taken += 1
        if self._taken % (WINDOW // 2) == 0 and self._line is not None and not self.is_done:
            self._line.link.send(Grant(self.id, WINDOW // 2))

    def _push(self, item: Outcome | None) -> None:
        self.items.append(item)
        news, self.news = self.news, Outcome()
        news.set_packed(b"")
