"""One replica as the controller knows it: started, watched, reconfigured, stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import skate
from skate.exceptions import GetTimeoutError, RayActorError
from skate.serve._controller.resources import needs_of
from skate.serve._controller.rollout import Phase, Seen
from skate.serve._ids import NAMESPACE
from skate.serve._process import actor_class, ask, ended, surroundings
from skate.serve._replica import Replica, ReplicaSpec
from skate.serve._router.line import ReplicaInfo
from skate.util.placement_group import placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = ["ReplicaKeeper"]

logger = logging.getLogger("skate.serve")

_THREADS = 16  # of the actor: one waits for its end, others answer the controller and carry large values
_FAILED_CHECKS = 3  # in a row, after which a replica is given up
_DEFAULT_CPUS = 1
_LATE_S = 5.0  # after which it is worth telling that a replica has no process yet


class _Unwell(Exception):
    """A replica lives, but is not healthy."""


class ReplicaKeeper:
    """Starts a replica and follows its life. On the controller's loop.

    Args:
        spec: What to start.
        changed: Called whenever the phase has changed.
        failed: Called with an error when it did not start, or ended by itself.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        changed: Callable[[], None],
        failed: Callable[[ReplicaKeeper, BaseException], None],
    ) -> None:
        self.spec = spec
        self.phase = Phase.STARTING
        self.info: dict[str, Any] = {}
        self.was_running = False
        self.delay = ""  # why it has no process yet, in words
        self.started_at = time.time()
        self.is_over = asyncio.Event()
        self._changed = changed
        self._failed = failed
        self._actor: Any = None
        self._group: Any = None
        self._life: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The unique part of the replica's id."""
        return self.spec.id.unique_id

    @property
    def actor_id(self) -> str | None:
        """The id of the actor, once there is one."""
        return None if self._actor is None else self._actor._actor_id.hex()

    def seen(self, load: int) -> Seen:
        """Return the replica as the rollout sees it."""
        return Seen(self.id, self.spec.version, self.phase, load)

    def told(self) -> ReplicaInfo:
        """Return the replica as callers are told of it."""
        return ReplicaInfo(
            self.id,
            self.spec.id.actor_name,
            self.info["address"],
            self.spec.options.max_ongoing_requests,
            self.info["node"],
            self.actor_id or "",
        )

    def start(self) -> None:
        """Start it."""
        self._life = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        try:
            late = asyncio.get_running_loop().call_later(_LATE_S, self._warn_of_delay)
            try:
                await self._create()
                await ask(self._actor.begun)
            finally:
                late.cancel()
            self.delay = ""
            self.info = await ask(self._actor.start)
            self.phase = Phase.RUNNING
            self.was_running = True
            self._changed()
            end = asyncio.ensure_future(ended(self._actor))
            health = asyncio.ensure_future(self._watch_health())
            try:
                await asyncio.wait([end, health], return_when=asyncio.FIRST_COMPLETED)
                for task in (health, end):
                    if task.done():
                        task.result()
            finally:
                health.cancel()
                end.cancel()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if self.phase is Phase.STOPPING:
                return  # it was told to end
            if isinstance(error, _Unwell):
                self.stop()  # its process lives: what it has under way may still be answered
            else:
                self.phase = Phase.STOPPING
                await self._clean_up()
                self.is_over.set()
            self._failed(self, error)

    def _warn_of_delay(self) -> None:
        needs = needs_of(self.spec.options)
        available = skate.available_resources()
        free = {name: available.get(name, 0.0) for name in needs}
        self.delay = (
            f"A replica waits for its resources: it needs {needs}, and {free} is free. Stop something, or give the "
            "deployment less with ray_actor_options."
        )
        logger.warning("%s: %s", self.spec.id, self.delay)
        self._changed()

    async def _create(self) -> None:
        options = dict(self.spec.options.ray_actor_options)
        options.setdefault("num_cpus", _DEFAULT_CPUS)
        options["runtime_env"] = surroundings(options.get("runtime_env"))
        bundles = self.spec.options.placement_group_bundles
        loop = asyncio.get_running_loop()
        if bundles is not None:
            strategy = self.spec.options.placement_group_strategy or "PACK"
            self._group = await loop.run_in_executor(
                None, lambda: placement_group(bundles, strategy=strategy, lifetime="detached")
            )
            await self._group.ready()
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        made = actor_class(Replica, self.spec.id.deployment_id.to_replica_actor_class_name()).options(
            name=self.spec.id.actor_name,
            namespace=NAMESPACE,
            lifetime="detached",
            max_concurrency=_THREADS,
            max_restarts=0,
            **options,
        )
        # In a thread: it asks the engine, which may have to be waited for.
        self._actor = await loop.run_in_executor(None, made.remote, self.spec)

    async def _watch_health(self) -> None:
        options = self.spec.options
        failed = 0
        while True:
            await asyncio.sleep(self.spec.options.health_check_period_s)
            options = self.spec.options
            try:
                async with asyncio.timeout(options.health_check_timeout_s):
                    await ask(self._actor.check_health)
                failed = 0
            except RayActorError:
                raise
            except (Exception, TimeoutError, GetTimeoutError) as error:
                failed += 1
                logger.warning("Health check %d of %s failed: %s", failed, self.spec.id, error)
                if failed >= _FAILED_CHECKS:
                    raise _Unwell(
                        f"{self.spec.id} failed {failed} health checks in a row; the last one: {error!r}"
                    ) from None

    async def reconfigure(self, spec: ReplicaSpec) -> None:
        """Give it options that need no new replica."""
        self.spec = spec
        await ask(self._actor.reconfigure, spec)

    async def stats(self) -> dict[str, Any]:
        """Ask how busy it is."""
        answer: dict[str, Any] = await ask(self._actor.stats)
        return answer

    def stop(self) -> None:
        """Stop it when its requests have been answered."""
        if self._stopping is None:
            self.phase = Phase.STOPPING
            self._changed()
            self._stopping = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        grace = self.spec.options.graceful_shutdown_timeout_s
        if self._actor is not None and self.was_running:
            try:
                async with asyncio.timeout(grace + 1):
                    await ask(self._actor.stop, grace)
            except (RayActorError, TimeoutError):
                logger.debug("%s ended before it was stopped, or did not stop in time.", self.spec.id)
            except Exception:
                logger.exception("%s did not stop as it should; its process is ended.", self.spec.id)
        if self._life is not None:
            self._life.cancel()
        await self._clean_up()
        self.is_over.set()
        self._changed()

    def kill(self) -> None:
        """End it at once."""
        if self._life is not None:
            self._life.cancel()
        if self._actor is not None:
            skate.kill(self._actor)

    async def _clean_up(self) -> None:
        loop = asyncio.get_running_loop()
        if self._actor is not None:
            await loop.run_in_executor(None, skate.kill, self._actor)
        if self._group is not None:
            await loop.run_in_executor(None, remove_placement_group, self._group)
