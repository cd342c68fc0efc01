"""One replica as a router sees it: its link, what it has been sent, how busy it says it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

import skate
from skate._api.payloads import unpack
from skate.serve._router.calls import Outgoing
from skate.serve._router.outcome import Outcome
from skate.serve._runtime.ids import NAMESPACE
from skate.serve._wire.address import Address
from skate.serve._wire.frames import Bye, ByeHeard, Frame, Load, Reject
from skate.serve._wire.link import Link, connect

__all__ = ["Line", "ReplicaInfo"]

logger = logging.getLogger("skate.serve")

_ABOUT_ITSELF = frozenset((Reject, Load, Bye))

_tasks: set[asyncio.Task[Any]] = set()


def _spawn(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; the loop alone would not keep it alive."""
    task = asyncio.ensure_future(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class ReplicaInfo(msgspec.Struct):
    """What the controller tells of a replica."""

    id: str
    actor: str  # the name of its actor
    address: Address
    capacity: int  # requests that it takes at a time
    node: str = ""
    actor_id: str = ""


class Line:
    """The connection to one replica.

    Args:
        info: The replica.
        name: The caller's name, which tells its deliveries from others'.
        freed: Called when there may be room for another request.
        rejected: Called with a request that the replica did not begin with.
        gone: Called when the connection ends, with the requests that were not answered.
    """

    def __init__(
        self,
        info: ReplicaInfo,
        name: str,
        freed: Callable[[], None],
        rejected: Callable[[Outgoing], None],
        gone: Callable[[Line, list[Outgoing]], None],
    ) -> None:
        self.info = info
        self.name = name
        self.link: Link = Link(self._receive)
        self.under_way: dict[int, Outgoing] = {}
        self.load = 0  # under way at the replica, of all callers, as it said last
        self.models: frozenset[str] = frozenset()
        self.stats: dict[str, Any] = {}  # what the user's code measured for routing
        self.finished: Callable[[Line, Outgoing], None] | None = None
        self.is_full = False  # it said so; over as soon as it says otherwise
        self.is_leaving = False  # it takes nothing further
        self._actor: Any = None
        self._freed = freed
        self._rejected = rejected
        self._gone = gone

    async def open(self) -> None:
        """Connect; raises LinkClosed if the replica is gone."""
        self.link = await connect(self.info.address, self._receive, self._closed, self.name)
        self.models = frozenset(self.link.about.get("models", ()))
        self._take_stats(self.link.about.get("stats"))

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        return (
            len(self.under_way) < self.info.capacity
            and not self.is_full
            and not self.is_leaving
            and self.link.is_open
        )

    @property
    def busyness(self) -> int:
        """How many requests the replica has, as far as can be known here."""
        return max(len(self.under_way), self.load)

    def begin(self, call: Outgoing) -> None:
        """Send a request."""
        self.under_way[call.id] = call
        call.line = self
        call.sent += 1
        call.send(self)
        if call.span is not None:
            call.span.arrived()
            call.span = None

    def deliver(self, id: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Send arguments through the object store: references in them are resolved on the way, as for any actor."""
        _spawn(self._deliver(id, args, kwargs))

    async def fetch(self, id: int, number: int = 0) -> Any:
        """Return a reference to an answer that the replica keeps in the object store."""
        actor = await self._find_actor()
        return actor.collect.remote(self.name, id, number)

    def fetch_into(self, outcome: Outcome, id: int, number: int = 0) -> None:
        """Set an outcome to the reference to an answer that the replica keeps."""

        async def fetch() -> None:
            try:
                outcome.set_reference(await self.fetch(id, number))
            except Exception as error:
                outcome.set_error(error)

        _spawn(fetch())

    async def _deliver(self, id: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        actor = await self._find_actor()
        actor.deliver.remote(self.name, id, list(kwargs), *args, *kwargs.values())

    async def _find_actor(self) -> Any:
        if self._actor is None:
            loop = asyncio.get_running_loop()
            self._actor = await loop.run_in_executor(None, skate.get_actor, self.info.actor, NAMESPACE)
        return self._actor

    def leave(self) -> None:
        """Send nothing further, and close once everything has been answered."""
        self.is_leaving = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_leaving and not self.under_way:
            self.link.close()

    def _receive(self, _: Link, frame: Frame) -> None:
        if type(frame) in _ABOUT_ITSELF:
            self._hear(frame)
            return
        call = self.under_way.get(frame.id)  # type: ignore[union-attr]  # all others are answers
        if call is None:
            return  # cancelled
        if call.receive(frame):
            self.finish(call)
            self.load = frame.load  # type: ignore[union-attr]  # every last answer tells it
            self.is_full = False
            self._freed()
            if self.is_leaving:
                self._close_if_done()

    def _hear(self, frame: Frame) -> None:
        """Take what the replica says of itself."""
        match frame:
            case Reject(id=id, load=load):
                self.load = load
                self.is_full = True
                call = self.under_way.pop(id, None)
                if call is not None:
                    call.line = None
                    call.sent -= 1
                    self._rejected(call)
            case Load(load=load, models=models):
                self.load = load
                self.is_full = load >= self.info.capacity
                if models is not None:
                    self.models = frozenset(models)
                self._take_stats(frame.stats)
                self._freed()
            case Bye():
                self.is_leaving = True
                self.link.send(ByeHeard())
                self._freed()

    def finish(self, call: Outgoing) -> None:
        """Note that nothing further is expected for a request."""
        call.is_done = True
        self.under_way.pop(call.id, None)
        if self.finished is not None:
            self.finished(self, call)

    def _take_stats(self, packed: bytes | None) -> None:
        if packed is None:
            return
        try:
            self.stats = unpack(packed)
        except Exception as error:  # they may be of a class that is not known here
            logger.warning("The routing stats of replica %s cannot be read: %s", self.info.id, error)

    def _closed(self, _: Link) -> None:
        lost = list(self.under_way.values())
        self.under_way.clear()
        self.is_leaving = True
        for call in lost:
            call.line = None
        self._gone(self, lost)
