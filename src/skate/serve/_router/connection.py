"""A router's connection to one replica: ongoing requests, reported load, loaded models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import skate
from skate._api.payloads import unpack
from skate.serve._router.requests import OutgoingRequest
from skate.serve._router.result import Result
from skate.serve._runtime.ids import NAMESPACE
from skate.serve._wire.frames import Frame, GoAway, GoAwayAck, Load, Reject
from skate.serve._wire.link import Link, connect
from skate.serve._wire.updates import ReplicaInfo

__all__ = ["Connection"]

logger = logging.getLogger("skate.serve")

_STATUS_FRAMES = frozenset((Reject, Load, GoAway))

_tasks: set[asyncio.Task[Any]] = set()


def _spawn(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as a task, and keep a reference to it until it is done."""
    task = asyncio.ensure_future(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class Connection:
    """A connection to one replica.

    Args:
        info: The replica.
        name: The caller's name, which identifies its deliveries at the replica.
        freed: Called when the replica may have room for another request.
        rejected: Called with each request that the replica rejected.
        gone: Called when the connection closes, with the unanswered requests.
    """

    def __init__(
        self,
        info: ReplicaInfo,
        name: str,
        freed: Callable[[], None],
        rejected: Callable[[OutgoingRequest], None],
        gone: Callable[[Connection, list[OutgoingRequest]], None],
    ) -> None:
        self.info = info
        self.name = name
        self.link: Link = Link(self._receive)
        self.ongoing: dict[int, OutgoingRequest] = {}
        self.load = 0  # ongoing requests of all callers, as the replica last reported
        self.models: frozenset[str] = frozenset()
        self.stats: dict[str, Any] = {}  # the latest result of `record_routing_stats`
        self.finished: Callable[[Connection, OutgoingRequest], None] | None = None
        self.is_full = False  # set by a rejection, and cleared by the next load report or answer
        self.is_draining = False  # the replica takes no further requests
        self._actor: Any = None
        self._freed = freed
        self._rejected = rejected
        self._gone = gone

    async def open(self) -> None:
        """Connect to the replica.

        Raises:
            LinkClosed: If the replica is gone.
        """
        self.link = await connect(self.info.address, self._receive, self._closed, self.name)
        self.models = frozenset(self.link.about.get("models", ()))
        self._take_stats(self.link.about.get("stats"))

    @property
    def has_room(self) -> bool:
        """Whether the replica may take another request now."""
        return (
            len(self.ongoing) < self.info.max_ongoing_requests
            and not self.is_full
            and not self.is_draining
            and self.link.is_open
        )

    @property
    def queue_len(self) -> int:
        """Number of ongoing requests at the replica, as far as this caller knows."""
        return max(len(self.ongoing), self.load)

    def begin(self, request: OutgoingRequest) -> None:
        """Send a request to the replica."""
        self.ongoing[request.id] = request
        request.connection = self
        request.attempts += 1
        request.send(self)
        if request.span is not None:
            request.span.end()
            request.span = None

    def deliver(self, id: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Send arguments by an actor call, which resolves references among them."""
        _spawn(self._deliver(id, args, kwargs))

    async def fetch(self, id: int, number: int = 0) -> Any:
        """Return a reference to a result that the replica keeps in the object store."""
        actor = await self._find_actor()
        return actor.collect.remote(self.name, id, number)

    def fetch_result(self, result: Result, id: int, number: int = 0) -> None:
        """Set a result to the reference of a value that the replica keeps."""

        async def fetch() -> None:
            try:
                result.set_reference(await self.fetch(id, number))
            except Exception as error:
                result.set_error(error)

        _spawn(fetch())

    async def _deliver(self, id: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        actor = await self._find_actor()
        actor.deliver.remote(self.name, id, list(kwargs), *args, *kwargs.values())

    async def _find_actor(self) -> Any:
        if self._actor is None:
            loop = asyncio.get_running_loop()
            self._actor = await loop.run_in_executor(None, skate.get_actor, self.info.actor, NAMESPACE)
        return self._actor

    def drain(self) -> None:
        """Send no further requests, and close after the last answer."""
        self.is_draining = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_draining and not self.ongoing:
            self.link.close()

    def _receive(self, _: Link, frame: Frame) -> None:
        if type(frame) in _STATUS_FRAMES:
            self._handle_status(frame)
            return
        request = self.ongoing.get(frame.id)  # type: ignore[union-attr]  # all other frames are answers
        if request is None:
            return  # a cancelled request
        if request.receive(frame):
            self.finish(request)
            self.load = frame.load  # type: ignore[union-attr]  # every final answer carries it
            self.is_full = False
            self._freed()
            if self.is_draining:
                self._close_if_done()

    def _handle_status(self, frame: Frame) -> None:
        """Handle a frame about the replica itself."""
        match frame:
            case Reject(id=id, load=load):
                self.load = load
                self.is_full = True
                request = self.ongoing.pop(id, None)
                if request is not None:
                    request.connection = None
                    request.attempts -= 1
                    self._rejected(request)
            case Load(load=load, models=models):
                self.load = load
                self.is_full = load >= self.info.max_ongoing_requests
                if models is not None:
                    self.models = frozenset(models)
                self._take_stats(frame.stats)
                self._freed()
            case GoAway():
                self.is_draining = True
                self.link.send(GoAwayAck())
                self._freed()

    def finish(self, request: OutgoingRequest) -> None:
        """Remove a request that expects no further answers."""
        request.is_done = True
        self.ongoing.pop(request.id, None)
        if self.finished is not None:
            self.finished(self, request)

    def _take_stats(self, packed: bytes | None) -> None:
        if packed is None:
            return
        try:
            self.stats = unpack(packed)
        except Exception as error:  # unpickling may need a class that this process does not have
            logger.warning("The routing stats of replica %s cannot be read: %s", self.info.id, error)

    def _closed(self, _: Link) -> None:
        lost = list(self.ongoing.values())
        self.ongoing.clear()
        self.is_draining = True
        for request in lost:
            request.connection = None
        self._gone(self, lost)
