"""One replica as the controller knows it: started, watched, reconfigured, stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import skate
from skate.exceptions import GetTimeoutError, RayActorError
from skate.serve._build.spec import DeploymentSpec
from skate.serve._controller.metrics import record_replica_started, record_replica_stopped
from skate.serve._controller.place import Seat
from skate.serve._controller.records import ReplicaRecord
from skate.serve._controller.resources import needs_of, node_share
from skate.serve._controller.rollout import Phase, Seen
from skate.serve._ids import NAMESPACE
from skate.serve._process import actor_class, ask, ended, surroundings
from skate.serve._replica import Replica, ReplicaSpec
from skate.serve._wire.updates import ReplicaInfo

__all__ = ["ReplicaKeeper"]

logger = logging.getLogger("skate.serve")

T = TypeVar("T")

_THREADS = 16  # of the actor: one waits for its end, others answer the controller and carry large values
_FAILED_CHECKS = 3  # in a row, after which a replica is given up
_DEFAULT_CPUS = 1
_LATE_S = 5.0  # after which it is worth telling that a replica has no process yet


class _Unwell(Exception):
    """A replica lives, but is not healthy."""


class _Vanished(Exception):
    """A replica that ran is not there."""


class ReplicaKeeper:
    """Starts a replica and follows its life. On the controller's loop.

    Args:
        spec: What to start.
        deployment: What the deployment should be when it is started.
        changed: Called whenever the phase has changed.
        failed: Called with an error when it did not start, or ended by itself.
        seat: Its part of a placement group, if it has one.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        deployment: DeploymentSpec,
        changed: Callable[[], None],
        failed: Callable[[ReplicaKeeper, BaseException], None],
        seat: Seat | None = None,
    ) -> None:
        self.spec = spec
        self.deployment = deployment
        self.phase = Phase.STARTING
        self.info: dict[str, Any] = {}
        self.was_running = False
        self.delay = ""  # why it has no process yet, in words
        self.started_at = time.time()
        self.is_over = asyncio.Event()
        self._changed = changed
        self._failed = failed
        self._actor: Any = None
        self._actor_id: str | None = None
        self._seat = seat
        self._making: asyncio.Future[Any] | None = None  # what a thread asks of the engine
        self._life: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The unique part of the replica's id."""
        return self.spec.id.unique_id

    @property
    def actor_id(self) -> str | None:
        """The id of the actor, once there is one."""
        return self._actor_id if self._actor is None else self._actor._actor_id.hex()

    @property
    def gang(self) -> str:
        """The id of its gang, empty if it has none."""
        return "" if self.spec.gang is None else self.spec.gang.gang_id

    def seen(self, load: int) -> Seen:
        """Return the replica as the rollout sees it."""
        return Seen(self.id, self.spec.version, self.phase, load, self.gang)

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

    def record(self, key_of: Callable[[Any], str]) -> ReplicaRecord:
        """Return what another controller would have to know."""
        info = {name: value for name, value in self.info.items() if name != "address"}
        return ReplicaRecord(
            self.id,
            key_of(self.deployment),
            self.spec.rank,
            self.spec.world_size,
            self.phase.value,
            self.started_at,
            self.actor_id,
            self.info.get("address"),
            info,
            self.spec.gang,
        )

    def start(self) -> None:
        """Start it."""
        self._life = asyncio.ensure_future(self._live(self._begin))

    def adopt(self, record: ReplicaRecord) -> None:
        """Go on with it where another controller was killed."""
        self.started_at = record.started_at
        self._actor_id = record.actor_id
        self.phase = Phase(record.phase)
        if record.address is not None:
            self.info = {"address": record.address, **record.info}
            self.was_running = True
        if self.phase is Phase.STOPPING:
            self._stopping = asyncio.ensure_future(self._stop())
        elif self.phase is Phase.RUNNING:
            self._life = asyncio.ensure_future(self._live(self._find))
        else:
            self.start()  # which takes what there is of it

    async def _live(self, begin: Callable[[], Awaitable[None]]) -> None:
        try:
            await begin()
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
            self.stop()  # another controller told it to end, and could not take note of that
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

    async def _begin(self) -> None:
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
        record_replica_started(self.spec.id.deployment_id, time.time() - self.started_at)
        self._changed()

    async def _find(self) -> None:
        """Find the actor that another controller has made."""
        await self._look()
        if self._actor is None:
            raise _Vanished("its process was gone when the controller had been restarted")

    async def _look(self) -> None:
        """See what there is under the replica's name."""
        if self._actor is None:
            self._actor = await self._in_thread(lambda: _or_none(skate.get_actor, self._name, NAMESPACE))

    @property
    def _name(self) -> str:
        return self.spec.id.actor_name

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Call what asks the engine, and may have to wait; it goes on when whoever awaits it is cancelled."""
        self._making = asyncio.get_running_loop().run_in_executor(None, function)
        found: T = await asyncio.shield(self._making)
        return found

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
        if share := node_share(self.spec.id.deployment_id, self.spec.options):
            options["resources"] = {**(options.get("resources") or {}), **share}
        if self._seat is not None:
            options["scheduling_strategy"] = await self._seat.strategy()
        made = actor_class(Replica, self.spec.id.deployment_id.to_replica_actor_class_name()).options(
            name=self._name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_concurrency=_THREADS,
            max_restarts=0,
            **options,
        )
        self._actor = await self._in_thread(lambda: made.remote(self.spec))

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

    async def reconfigure(self, deployment: DeploymentSpec) -> None:
        """Give it options that need no new replica."""
        self.spec = spec = replace(self.spec, options=deployment.options)
        await self._find()
        await ask(self._actor.reconfigure, spec)
        self.deployment = deployment

    async def stats(self) -> dict[str, Any]:
        """Ask how busy it is."""
        await self._find()
        answer: dict[str, Any] = await ask(self._actor.stats)
        return answer

    def stop(self, grace_s: float | None = None) -> None:
        """Stop it when its requests have been answered.

        Args:
            grace_s: How long they may take; as the options say if not given.
        """
        if self._stopping is None:
            self.phase = Phase.STOPPING
            self._changed()
            self._stopping = asyncio.ensure_future(self._stop(grace_s))

    async def _stop(self, grace_s: float | None = None) -> None:
        grace = self.spec.options.graceful_shutdown_timeout_s if grace_s is None else grace_s
        began = time.perf_counter()
        if self.was_running:
            await self._look()
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
        record_replica_stopped(self.spec.id.deployment_id, time.perf_counter() - began)
        self.is_over.set()
        self._changed()

    def kill(self) -> None:
        """End it at once."""
        if self._life is not None:
            self._life.cancel()
        if self._actor is not None:
            skate.kill(self._actor)

    async def _clean_up(self) -> None:
        if self._making is not None:
            await asyncio.wait([self._making])  # or it would make what nobody knows of
        await self._look()
        loop = asyncio.get_running_loop()
        if self._actor is not None:
            await loop.run_in_executor(None, skate.kill, self._actor)
        if self._seat is not None:
            await self._seat.leave()


def _or_none(find: Callable[..., Any], *names: str) -> Any:
    try:
        return find(*names)
    except ValueError:
        return None
