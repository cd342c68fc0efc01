"""Requests that go where a router of the user's sends them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

import skate
from skate._api.payloads import unpack
from skate.serve._config import defaults, import_paths
from skate.serve._router.calls import Outgoing
from skate.serve._router.line import Line
from skate.serve._routing.base import RequestRouter
from skate.serve._routing.mixins import FIFOMixin
from skate.serve._routing.replicas import RunningReplica
from skate.serve._routing.requests import PendingRequest, RequestMetadata, RoutingProgress
from skate.serve._runtime.ids import DeploymentID
from skate.serve.exceptions import RayServeException

__all__ = ["CustomRouting", "RouterNews"]

logger = logging.getLogger("skate.serve")


class RouterNews(msgspec.Struct):
    """Which router a deployment wants, as its callers are told."""

    path: str
    code: bytes | None = None  # of a class that was given as such
    kwargs: dict[str, Any] = {}
    initial_backoff_s: float = defaults.ROUTER_INITIAL_BACKOFF_S
    backoff_multiplier: float = defaults.ROUTER_BACKOFF_MULTIPLIER
    max_backoff_s: float = defaults.ROUTER_MAX_BACKOFF_S

    def makes_the_same(self, other: RouterNews) -> bool:
        """Tell whether a router that was made by the other is also the one wanted here."""
        return (self.path, self.code, self.kwargs) == (other.path, other.code, other.kwargs)


class CustomRouting:
    """Asks the user's router about each request that waits, several at a time. On the loop of Serve.

    Args:
        id: The deployment.
        news: Which router to make.
        queue: The requests that wait, oldest first.
        connected: Waits until the replicas that are known have been connected to.
        place: Sends a request that has left the queue.
        fail: Ends a request with an error.
    """

    def __init__(
        self,
        id: DeploymentID,
        news: RouterNews,
        queue: deque[Outgoing],
        connected: Callable[[], Coroutine[Any, Any, object]],
        place: Callable[[Outgoing, Line], None],
        fail: Callable[[Outgoing, Exception], None],
    ) -> None:
        self.news = news
        self._id = id
        self._queue = queue
        self._connected = connected
        self._place = place
        self._fail = fail
        self._router: RequestRouter | None = None
        self._problem: RayServeException | None = None
        self._is_ready = asyncio.Event()
        self._changed = asyncio.Event()  # set for a moment when a replica may have room
        self._lines: dict[RunningReplica, Line] = {}
        self._replicas: dict[Line, RunningReplica] = {}
        self._asking: set[int] = set()  # the numbers of requests that the router is asked about
        self._tasks: set[asyncio.Task[None]] = set()
        self._routed: dict[int, str] = {}  # internal ids of requests that replicas have, by their numbers
        self._preparing = asyncio.ensure_future(self._prepare())

    def update(self, lines: Sequence[Line], news: RouterNews) -> None:
        """Take on which replicas there are, and how long to wait for one."""
        self.news = news
        self._replicas = {line: self._replicas.get(line) or RunningReplica(line, self._id) for line in lines}
        self._lines = {replica: line for line, replica in self._replicas.items()}
        if self._router is not None:
            self._tell_router()

    def wake(self) -> None:
        """Ask about requests that wait: there is another one, or a replica may have room."""
        self._changed.set()
        self._changed.clear()
        most = RequestRouter.max_num_routing_tasks_cap
        if self._router is not None:
            most = self._router.max_num_routing_tasks_cap
        for _ in range(min(len(self._queue), most) - len(self._tasks)):
            self._tasks.add(asyncio.ensure_future(self._route()))

    def finished(self, line: Line, call: Outgoing) -> None:
        """Tell the router that a request is over."""
        internal_id = self._routed.pop(call.id, None)
        replica = self._replicas.get(line) or RunningReplica(line, self._id)
        if internal_id is not None and self._router is not None:
            self._tell(self._router.on_request_completed, replica.replica_id, internal_id)

    def lost(self, line: Line, calls: Sequence[Outgoing]) -> None:
        """Tell the router that a replica is gone, with requests that it had."""
        for call in calls:
            self.finished(line, call)
        if self._router is not None:
            replica = self._replicas.get(line) or RunningReplica(line, self._id)
            self._tell(self._router.on_replica_actor_died, replica.replica_id)

    def close(self) -> None:
        """Ask no more."""
        self._preparing.cancel()
        for task in self._tasks:
            task.cancel()

    async def _prepare(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            # In a thread: the module may import much.
            kind = await loop.run_in_executor(None, _class_of, self.news)
            context = skate.get_runtime_context()
            router = kind(
                deployment_id=self._id,
                self_actor_id=context.get_actor_id(),
                self_node_id=context.get_node_id(),
                initial_backoff_s=self.news.initial_backoff_s,
                backoff_multiplier=self.news.backoff_multiplier,
                max_backoff_s=self.news.max_backoff_s,
            )
            router.initialize_state(**self.news.kwargs)
        except Exception as error:
            logger.exception("The request router %s of %s cannot be made.", self.news.path, self._id)
            self._problem = RayServeException(
                f"The request router {self.news.path} of {self._id} cannot be made: "
                f"{type(error).__name__}: {error}"
            )
        else:
            self._router = router
            self._tell_router()
        self._is_ready.set()

    def _tell_router(self) -> None:
        assert self._router is not None
        news = self.news
        self._router.update_backoff_params(
            news.initial_backoff_s, news.backoff_multiplier, news.max_backoff_s
        )
        self._tell(self._router.update_replicas, list(self._replicas.values()))

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except Exception:
            logger.exception("The request router %s of %s failed.", self.news.path, self._id)

    async def _route(self) -> None:
        try:
            await self._is_ready.wait()
            while (call := self._next()) is not None:
                self._asking.add(call.id)
                try:
                    await self._find_place(call)
                except Exception as error:
                    if _is_waiting(call):
                        self._queue.remove(call)
                        self._fail(call, error)
                finally:
                    self._asking.discard(call.id)
        finally:
            # At once: a request that comes in this very turn needs another task.
            self._tasks.remove(asyncio.current_task())  # type: ignore[arg-type]  # this runs in one

    def _next(self) -> Outgoing | None:
        return next((call for call in self._queue if call.id not in self._asking), None)

    async def _find_place(self, call: Outgoing) -> None:
        if self._router is None:
            assert self._problem is not None
            raise self._problem
        pending = _PendingCall(call)
        progress = pending.routing_context
        attempt = 0
        await self._connected()  # or requests would go to those that happen to be the first
        while _is_waiting(call):
            tries = progress.tries
            replica = await self._choose(self._router, pending)
            if replica is not None:
                chosen = self._whose(call, self._router)
                if chosen is None:
                    self._tell(self._router.on_request_cancelled, pending.metadata.internal_request_id)
                else:
                    self._send(chosen, pending if chosen is call else _PendingCall(chosen), replica)
                continue
            if progress.tries == tries:  # otherwise the router has begun with those it likes best
                await self._wait(self._router._backoff_s(attempt))
                attempt += 1

    async def _choose(self, router: RequestRouter, pending: PendingRequest) -> RunningReplica | None:
        candidates = [replica for replica, line in self._lines.items() if not line.is_leaving]
        if not candidates:
            return None
        for rank in await router.choose_replicas(candidates, pending):
            free = [replica for replica in rank if replica in self._lines and replica.has_room]
            if free:
                return min(free, key=lambda replica: replica.queue_len)
        return None

    def _whose(self, call: Outgoing, router: RequestRouter) -> Outgoing | None:
        """Return the request that gets the replica that was chosen for one, which may be gone by now."""
        if not isinstance(router, FIFOMixin):
            return call if _is_waiting(call) else None
        model = call.context.model
        alike = (each for each in self._queue if each.context.model == model)
        return next(alike, self._queue[0] if self._queue else None)

    def _send(self, call: Outgoing, pending: PendingRequest, replica: RunningReplica) -> None:
        self._queue.remove(call)
        self._routed[call.id] = pending.metadata.internal_request_id
        self._place(call, self._lines[replica])
        assert self._router is not None
        self._tell(self._router.on_request_routed, pending, replica.replica_id, None)

    async def _wait(self, longest_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError:
            return  # the router may have changed its mind without our knowing


class _PendingCall(PendingRequest):
    """A request of this process, whose arguments are unpacked if the router looks at them."""

    def __init__(self, call: Outgoing) -> None:
        context = call.context
        method = getattr(call, "method", "__call__")
        self.metadata = RequestMetadata(
            request_id=context.request_id,
            internal_request_id=f"{context.request_id}-{call.id}",
            call_method=method,
            route=context.route,
            app_name=context.app,
            multiplexed_model_id=context.model,
            session_id=context.session,
            is_streaming=hasattr(call, "items"),
            is_http_request=bool(context.method),
        )
        self.created_at = time.time()
        self.routing_context = RoutingProgress()
        self._call = call
        self._given: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._given is None:
            packed, heavy = getattr(self._call, "args", None), getattr(self._call, "heavy", None)
            self._given = heavy or (((), {}) if packed is None else unpack(packed))
        return self._given

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]  # nobody sets it
        """What the deployment is called with."""
        return self._arguments()[0]

    @property
    def kwargs(self) -> dict[str, Any]:  # type: ignore[override]  # nobody sets it
        """What the deployment is called with, by name."""
        return self._arguments()[1]


def _is_waiting(call: Outgoing) -> bool:
    return call.line is None and not call.is_done


def _class_of(news: RouterNews) -> type[RequestRouter]:
    kind: Any = import_paths.load(news.path) if news.code is None else import_paths.unpack(news.code)
    if not (isinstance(kind, type) and issubclass(kind, RequestRouter)):
        raise TypeError(f"{kind!r} does not derive from skate.serve.request_router.RequestRouter")
    return kind
