"""Sends the requests for one deployment to its replicas."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from skate.serve._router.calls import Outgoing
from skate.serve._router.choice import choose
from skate.serve._router.custom import CustomRouting, RouterNews
from skate.serve._router.line import Line, ReplicaInfo
from skate.serve._runtime.ids import DeploymentID
from skate.serve._watch.router import RouterMeasures
from skate.serve._wire.link import LinkClosed
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaDiedError,
    ReplicaUnavailableError,
    RequestCancelledError,
)

__all__ = ["DeploymentNews", "LoadReport", "Router"]

logger = logging.getLogger("skate.serve")

_PATIENCE_S = 1.0  # with a replica that a router should know of before it chooses

routing: Callable[[Outgoing, DeploymentID], None] | None = None
"""Begins the span of a request on its way to a replica; None where no traces are made."""


class DeploymentNews(msgspec.Struct):
    """What the controller tells of a deployment."""

    replicas: list[ReplicaInfo]
    max_queued: int = -1
    retry_after_s: float | None = None
    status_code: int = 503
    retry_lost: bool | None = None
    report_every_s: float = 0.0  # how often callers tell their loads; 0 where nobody scales by it
    exists: bool = True
    router: RouterNews | None = None  # the user's own
    obstacle: str = ""  # why there can never be a replica, if so

    @property
    def takes_requests(self) -> bool:
        """Whether a request that no replica has room for may wait."""
        return self.exists and (not self.obstacle or bool(self.replicas))


class LoadReport(msgspec.Struct):
    """How many requests wait at a caller, and how many it has sent to each replica."""

    deployment: str
    queued: int
    running: dict[str, int]
    at: float  # when it was written, in seconds since 1970


class Router:
    """Queues requests and gives each to a replica with room; all on the loop of Serve."""

    def __init__(self, id: DeploymentID, name: str, report: Callable[[LoadReport], None]) -> None:
        self.id = id
        self.news: DeploymentNews | None = None
        self._name = name
        self._report = report
        self._lines: dict[str, Line] = {}
        self._open: list[Line] = []
        self._queue: deque[Outgoing] = deque()
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._custom: CustomRouting | None = None
        self._arrived = asyncio.Event()
        self._limits_queue = False  # only once it has reached the replicas that were there when it began
        self._settling: asyncio.Task[None] | None = None
        self._last_report: LoadReport | None = None
        self._measures = RouterMeasures(
            id, lambda: len(self._queue), lambda: sum(len(line.under_way) for line in self._lines.values())
        )

    @property
    def queued(self) -> int:
        """How many requests wait for room at a replica."""
        return len(self._queue)

    @property
    def has_replicas(self) -> bool:
        """Whether there is a replica to send to."""
        return bool(self._open)

    async def known(self) -> None:
        """Wait until the controller has told of the deployment."""
        await self._arrived.wait()

    async def all_lines(self) -> list[Line]:
        """Return the connections to all replicas that run now."""
        await self.known()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        return list(self._open)

    async def _connected(self) -> None:
        """Wait until the replicas that are known now have been connected to, as far as that does not take long."""
        await self.known()
        if self._connecting:
            await asyncio.wait(set(self._connecting.values()), timeout=_PATIENCE_S)

    def submit(self, call: Outgoing) -> None:
        """Send a request to a replica, now or when one has room."""
        context = call.context
        self._measures.sent(context.route, not context.method)
        if routing is not None:
            routing(call, self.id)
        if not self._queue and self._custom is None:
            line = choose(self._open, call.context.model, random.randrange)
            if line is not None:
                line.begin(call)
                return
        news = self.news
        if news is not None:
            if not news.takes_requests:
                self._fail_all([call])
                return
            if self._limits_queue and 0 <= news.max_queued <= len(self._queue):
                self._turn_away(call, news)
                return
        call.arrived = time.monotonic()
        self._measures.queued()
        self._queue.append(call)
        if not self._open:
            self._tell_load()  # it may have to be scaled up from nothing
        if self._custom is not None:
            self._custom.wake()

    def cancel(self, call: Outgoing) -> None:
        """Forget a request: it leaves the queue, or its replica is told to stop. Its caller is not told anything."""
        if call.is_done:
            return
        line = call.line
        if line is None:
            call.is_done = True
            call.note_lost(RequestCancelledError(call.context.request_id))
            if call in self._queue:
                self._queue.remove(call)
            return
        call.cancel()
        line.finish(call)
        self._place_queued()

    def update(self, news: DeploymentNews) -> None:
        """Take what the controller tells: connect to new replicas, leave those that are gone."""
        self.news = news
        self._route_by(news.router)
        wanted = {info.id: info for info in news.replicas}
        for id, line in list(self._lines.items()):
            if id in wanted:
                line.info = wanted[id]
            else:
                del self._lines[id]
                line.leave()
        for id, task in list(self._connecting.items()):
            if id not in wanted:
                task.cancel()
                del self._connecting[id]
        for id, info in wanted.items():
            if id not in self._lines and id not in self._connecting:
                self._connecting[id] = asyncio.ensure_future(self._connect(info))
        self._renew_open()
        self._arrived.set()
        if not news.takes_requests:
            self._fail_all(self._queue)
            self._queue.clear()
        self._place_queued()
        if not self._connecting:
            self._limit_queue()
        elif self._settling is None:
            self._settling = asyncio.ensure_future(self._settle())
        self._watch_load(news.report_every_s)

    async def _settle(self) -> None:
        await self._connected()
        self._place_queued()
        self._limit_queue()

    def _limit_queue(self) -> None:
        """Apply the limit of the queue from now on, and to requests that came before the limit was known."""
        if self._limits_queue:
            return
        self._limits_queue = True
        news = self.news
        if news is not None and news.max_queued >= 0:
            while len(self._queue) > news.max_queued:
                self._turn_away(self._queue.pop(), news)

    def _turn_away(self, call: Outgoing, news: DeploymentNews) -> None:
        call.turn_away(
            BackPressureError(
                num_queued_requests=len(self._queue),
                max_queued_requests=news.max_queued,
                status_code=news.status_code,
                retry_after_s=news.retry_after_s,
            )
        )

    async def close(self) -> None:
        """Close every link."""
        if self._timer is not None:
            self._timer.cancel()
        if self._settling is not None:
            self._settling.cancel()
        for task in self._connecting.values():
            task.cancel()
        if self._custom is not None:
            self._custom.close()
        for line in list(self._lines.values()):
            line.link.abort()
        self._lines.clear()
        self._open.clear()
        self._fail_all(self._queue)
        self._queue.clear()
        self._measures.close()

    def _fail_all(self, calls: Iterable[Outgoing]) -> None:
        news = self.news
        reason = news.obstacle if news is not None and news.exists else ""
        for call in calls:
            call.turn_away(DeploymentUnavailableError(self.id, reason))

    async def _connect(self, info: ReplicaInfo) -> None:
        line = Line(info, self._name, self._place_queued, self._rejected, self._gone)
        try:
            await line.open()
        except LinkClosed as error:
            # The controller learns of a dead replica by itself, and tells us.
            logger.debug("No connection to replica %s: %s", info.id, error)
            return
        finally:
            if self._connecting.get(info.id) is asyncio.current_task():
                del self._connecting[info.id]
        self._lines[info.id] = line
        if self._custom is not None:
            line.finished = self._custom.finished
        self._renew_open()
        self._place_queued()

    def _renew_open(self) -> None:
        self._open = [line for line in self._lines.values() if not line.is_leaving]
        if self._custom is not None:
            self._custom.update(self._open, self._custom.news)

    def _route_by(self, news: RouterNews | None) -> None:
        """Ask a router of the user's from now on, or none."""
        custom = self._custom
        if news is not None and custom is not None and news.makes_the_same(custom.news):
            custom.news = news
            return
        if custom is not None:
            custom.close()
        self._custom = (
            None
            if news is None
            else CustomRouting(self.id, news, self._queue, self._connected, self._place, Outgoing.turn_away)
        )
        for line in self._lines.values():
            line.finished = None if self._custom is None else self._custom.finished

    def _place_queued(self) -> None:
        if self._custom is not None:
            self._custom.wake()
            return
        queue = self._queue
        while queue:
            line = choose(self._open, queue[0].context.model, random.randrange)
            if line is None:
                return
            self._place(queue.popleft(), line)

    def _place(self, call: Outgoing, line: Line) -> None:
        if call.arrived:
            call.waited = time.monotonic() - call.arrived
            call.arrived = 0.0
            self._measures.waited(call.waited)
        line.begin(call)

    def _rejected(self, call: Outgoing) -> None:
        self._wait_again(call)
        self._place_queued()

    def _wait_again(self, call: Outgoing) -> None:
        """Put a request that has been sent in vain before those that wait."""
        if call.bound_to:
            call.turn_away(ReplicaUnavailableError(call.bound_to))
        elif self.news is not None and not self.news.takes_requests:
            self._fail_all([call])
        else:
            self._queue.appendleft(call)

    def _gone(self, line: Line, lost: list[Outgoing]) -> None:
        if self._lines.get(line.info.id) is line:
            del self._lines[line.info.id]
        if self._custom is not None:
            self._custom.lost(line, lost)
        self._renew_open()
        for call in lost:
            if call.can_start_over:
                self._wait_again(call)
            else:
                call.turn_away(ReplicaDiedError(f"{self.id.key}#{line.info.id}"))
        self._place_queued()

    def _watch_load(self, every: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if every > 0:
            self._tell_load()
            self._timer = asyncio.get_running_loop().call_later(every, self._watch_load, every)

    def _tell_load(self) -> None:
        report = LoadReport(
            self.id.key,
            len(self._queue),
            {line.info.id: len(line.under_way) for line in self._lines.values()},
            time.time(),
        )
        self._report(report)
