"""A central queue of the free capacity of all replicas, for callers in many processes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec

import skate
from skate.serve._router.runtime import current_runtime
from skate.serve._wire.updates import DeploymentUpdate
from skate.serve.context import get_deployment_actor_context

__all__ = ["CapacityQueue", "CapacityQueueStats", "ReplicaCapacityInfo"]


@dataclass
class ReplicaCapacityInfo:
    """The capacity of a replica.

    Args:
        replica_id: The id of the replica.
        max_capacity: The most requests that it processes at a time.
        in_flight: The number of outstanding tokens for it.
    """

    replica_id: str
    max_capacity: int
    in_flight: int = 0


@dataclass
class CapacityQueueStats:
    """Statistics of a queue.

    Args:
        queue_size: Free tokens.
        num_waiters: Callers that wait for a token.
        num_replicas: Known replicas.
        total_capacity: All tokens.
        total_in_flight: Outstanding tokens.
        total_acquires: Calls of `acquire`.
        total_releases: Calls of `release`.
        total_timeouts: Calls of `acquire` that timed out.
        max_waiters_seen: The most concurrent waiters.
    """

    queue_size: int
    num_waiters: int
    num_replicas: int
    total_capacity: int
    total_in_flight: int
    total_acquires: int
    total_releases: int
    total_timeouts: int
    max_waiters_seen: int


@skate.remote
class CapacityQueue:
    """Issue tokens, each of which grants one request to a replica. Use it as a deployment actor.

    It serves `CapacityQueueRouter`, and follows the deployment's replicas by itself.

    Args:
        acquire_timeout_s: The longest wait for a token, in seconds.
        token_ttl_s: The age in seconds at which an outstanding token expires; None for never.
    """

    def __init__(
        self, acquire_timeout_s: float, token_ttl_s: float | None, _enable_long_poll: bool = True
    ) -> None:
        self._acquire_timeout_s = acquire_timeout_s
        self._token_ttl_s = token_ttl_s
        self._replicas: dict[str, ReplicaCapacityInfo] = {}
        self._waiters: deque[asyncio.Future[str]] = deque()
        self._outstanding: deque[tuple[float, str]] = deque()  # time and replica of each token, oldest first
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._total_acquires = self._total_releases = self._total_timeouts = 0
        self._total_ttl_reclaims = self._max_waiters_seen = 0
        self._pending_replicas: dict[str, int] | None = (
            None  # the latest update, until the actor's loop applies it
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        if _enable_long_poll:
            self._subscribe()

    def _subscribe(self) -> None:
        key = get_deployment_actor_context().deployment_id.key
        runtime = current_runtime()
        runtime.serve_loop.call(runtime.subscribe, f"deployment:{key}", self._receive_update)

    def _receive_update(self, data: bytes) -> None:
        # On the Serve event loop, which is not the loop of the actor.
        update = msgspec.msgpack.decode(data, type=DeploymentUpdate)
        self._pending_replicas = {info.id: info.max_ongoing_requests for info in update.replicas}
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._apply_pending)

    def _apply_pending(self) -> None:
        has_routes, self._pending_replicas = self._pending_replicas, None
        if has_routes is not None:
            self._set_replicas(has_routes)

    def _update_deployment_targets(self, deployment_target_info: Any) -> None:
        self._set_replicas(
            {
                each.replica_id.unique_id: each.max_ongoing_requests
                for each in deployment_target_info.running_replicas
            }
        )

    def _set_replicas(self, replicas: dict[str, int]) -> None:
        for id in set(self._replicas) - set(replicas):
            self.unregister_replica(id)
        for id, capacity in replicas.items():
            self.register_replica(id, capacity)

    def register_replica(self, replica_id: str, capacity: int) -> None:
        """Add a replica; a known one stays unchanged."""
        if replica_id not in self._replicas:
            self._replicas[replica_id] = ReplicaCapacityInfo(replica_id, capacity)
            self._serve_waiters()

    def unregister_replica(self, replica_id: str) -> None:
        """Remove a replica and its tokens."""
        self._replicas.pop(replica_id, None)
        self._outstanding = deque(each for each in self._outstanding if each[1] != replica_id)

    async def acquire(self, timeout_s: float | None = None) -> str | None:
        """Take a token for the replica with the fewest outstanding tokens, and return its id; None on time-out."""
        self._loop = asyncio.get_running_loop()
        self._apply_pending()
        self._total_acquires += 1
        found = None if self._waiters else self._take_token()
        if found is not None:
            return found
        waiter: asyncio.Future[str] = self._loop.create_future()
        self._waiters.append(waiter)
        self._max_waiters_seen = max(self._max_waiters_seen, len(self._waiters))
        try:
            async with asyncio.timeout(self._acquire_timeout_s if timeout_s is None else timeout_s):
                return await waiter
        except TimeoutError:
            self._total_timeouts += 1
            return None
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())  # the token arrived after the cancellation
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def release(self, replica_id: str) -> None:
        """Return a token. Tokens of removed replicas and expired tokens have no effect."""
        self._total_releases += 1
        known = next((each for each in self._outstanding if each[1] == replica_id), None)
        if known is not None:
            self._outstanding.remove(known)
        self._return_token(replica_id)

    def get_stats(self) -> CapacityQueueStats:
        """Return the statistics of the queue."""
        self._apply_pending()
        return CapacityQueueStats(
            queue_size=self.get_queue_length(),
            num_waiters=len(self._waiters),
            num_replicas=len(self._replicas),
            total_capacity=sum(each.max_capacity for each in self._replicas.values()),
            total_in_flight=sum(each.in_flight for each in self._replicas.values()),
            total_acquires=self._total_acquires,
            total_releases=self._total_releases,
            total_timeouts=self._total_timeouts,
            max_waiters_seen=self._max_waiters_seen,
        )

    def get_queue_length(self) -> int:
        """Return the number of free tokens."""
        return sum(max(0, each.max_capacity - each.in_flight) for each in self._replicas.values())

    def get_num_waiters(self) -> int:
        """Return the number of waiting callers."""
        return len(self._waiters)

    def get_registered_replicas(self) -> list[str]:
        """Return the ids of the known replicas."""
        self._apply_pending()
        return list(self._replicas)

    def get_replica_in_flight(self) -> dict[str, tuple[int, int]]:
        """Return the outstanding tokens and the capacity of each replica."""
        return {id: (each.in_flight, each.max_capacity) for id, each in self._replicas.items()}

    def _take_token(self) -> str | None:
        free = [each for each in self._replicas.values() if each.in_flight < each.max_capacity]
        if not free:
            return None
        chosen = min(free, key=lambda each: each.in_flight)
        chosen.in_flight += 1
        self._outstanding.append((time.monotonic(), chosen.replica_id))
        if self._token_ttl_s is not None and self._expiry_timer is None:
            self._expiry_timer = asyncio.get_running_loop().call_later(
                self._token_ttl_s, self._reclaim_expired
            )
        return chosen.replica_id

    def _return_token(self, replica_id: str) -> None:
        replica = self._replicas.get(replica_id)
        if replica is not None and replica.in_flight > 0:
            replica.in_flight -= 1
            self._serve_waiters()

    def _serve_waiters(self) -> None:
        while self._waiters:
            if self._waiters[0].done():
                self._waiters.popleft()
                continue
            found = self._take_token()
            if found is None:
                return
            self._waiters.popleft().set_result(found)

    def _reclaim_expired(self) -> None:
        """Reclaim expired tokens, and schedule the next expiry."""
        assert self._token_ttl_s is not None
        self._expiry_timer = None
        oldest_good = time.monotonic() - self._token_ttl_s
        lost = []
        while self._outstanding and self._outstanding[0][0] <= oldest_good:
            lost.append(self._outstanding.popleft()[1])
        self._total_ttl_reclaims += len(lost)
        for replica_id in lost:
            self._return_token(replica_id)
        if self._outstanding and self._expiry_timer is None:
            due = self._outstanding[0][0] - oldest_good
            self._expiry_timer = asyncio.get_running_loop().call_later(due, self._reclaim_expired)
