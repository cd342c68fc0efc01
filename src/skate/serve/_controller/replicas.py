"""Supervision of one replica: start, health checks, reconfiguration, stop."""

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
from skate.serve._config import defaults
from skate.serve._controller.metrics import record_replica_started, record_replica_stopped
from skate.serve._controller.placement import BundleLease, per_node_resource, required_resources
from skate.serve._controller.records import ReplicaRecord
from skate.serve._controller.rollout import Phase, ReplicaView
from skate.serve._replica import Replica, ReplicaSpec
from skate.serve._runtime.engine import actor_class, actor_runtime_env, call_actor, wait_until_stopped
from skate.serve._runtime.ids import NAMESPACE
from skate.serve._wire.updates import ReplicaInfo

__all__ = ["ReplicaSupervisor"]

logger = logging.getLogger("skate.serve")

T = TypeVar("T")

_ACTOR_THREADS = 16  # one waits for the stop; others answer the controller and transfer large values
_MAX_FAILED_HEALTH_CHECKS = 3  # in a row, before the replica is replaced
_START_WARNING_DELAY_S = 5.0  # when to warn that a replica still waits for resources


class _UnhealthyError(Exception):
    """A replica runs, but fails its health checks."""


class _ActorMissingError(Exception):
    """The actor of a replica that ran does not exist."""


class ReplicaSupervisor:
    """Starts a replica and supervises it. Runs on the controller's loop.

    Args:
        spec: The replica to start.
        deployment: The deployment specification that it starts with.
        changed: Called whenever the phase has changed.
        failed: Called with the error of a replica that failed to start or died.
        lease: Its share of a placement group, if it has one.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        deployment: DeploymentSpec,
        changed: Callable[[], None],
        failed: Callable[[ReplicaSupervisor, BaseException], None],
        lease: BundleLease | None = None,
    ) -> None:
        self.spec = spec
        self.deployment = deployment
        self.phase = Phase.STARTING
        self.info: dict[str, Any] = {}
        self.was_running = False
        self.waiting_reason = ""  # why it has no process yet
        self.started_at = time.time()
        self.stopped = asyncio.Event()
        self._changed = changed
        self._failed = failed
        self._actor: Any = None
        self._actor_id: str | None = None
        self._lease = lease
        self._engine_call: asyncio.Future[Any] | None = None  # a blocking call of the engine, in a thread
        self._supervision: asyncio.Task[None] | None = None
        self._stop_task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The unique part of the replica's id."""
        return self.spec.id.unique_id

    @property
    def actor_id(self) -> str | None:
        """The id of the actor, once it exists."""
        return self._actor_id if self._actor is None else self._actor._actor_id.hex()

    @property
    def gang(self) -> str:
        """The id of its gang, or an empty string."""
        return "" if self.spec.gang is None else self.spec.gang.gang_id

    def view(self, load: int) -> ReplicaView:
        """Return the input of the rollout decision for this replica."""
        return ReplicaView(self.id, self.spec.version, self.phase, load, self.gang)

    def describe(self) -> ReplicaInfo:
        """Return the description that callers connect by."""
        return ReplicaInfo(
            self.id,
            self.spec.id.actor_name,
            self.info["address"],
            self.spec.options.max_ongoing_requests,
            self.info["node"],
            self.actor_id or "",
        )

    def record(self, key_of: Callable[[Any], str]) -> ReplicaRecord:
        """Return the state that a restarted controller needs."""
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
        """Start the replica."""
        self._supervision = asyncio.ensure_future(self._supervise(self._start_actor))

    def recover(self, record: ReplicaRecord) -> None:
        """Take over the replica of a previous controller."""
        self.started_at = record.started_at
        self._actor_id = record.actor_id
        self.phase = Phase(record.phase)
        if record.address is not None:
            self.info = {"address": record.address, **record.info}
            self.was_running = True
        if self.phase is Phase.STOPPING:
            self._stop_task = asyncio.ensure_future(self._stop())
        elif self.phase is Phase.RUNNING:
            self._supervision = asyncio.ensure_future(self._supervise(self._require_actor))
        else:
            self.start()  # reuses the actor if it exists

    async def _supervise(self, start_up: Callable[[], Awaitable[None]]) -> None:
        try:
            await start_up()
            end = asyncio.ensure_future(wait_until_stopped(self._actor))
            health = asyncio.ensure_future(self._watch_health())
            try:
                await asyncio.wait([end, health], return_when=asyncio.FIRST_COMPLETED)
                for task in (health, end):
                    if task.done():
                        task.result()
            finally:
                health.cancel()
                end.cancel()
            self.stop()  # a previous controller stopped it and could not record that
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if self.phase is Phase.STOPPING:
                return  # the end was requested
            if isinstance(error, _UnhealthyError):
                self.stop()  # its process lives and may still answer open requests
            else:
                self.phase = Phase.STOPPING
                await self._clean_up()
                self.stopped.set()
            self._failed(self, error)

    async def _start_actor(self) -> None:
        warning = asyncio.get_running_loop().call_later(_START_WARNING_DELAY_S, self._report_waiting)
        try:
            await self._create()
            await call_actor(self._actor.begun)
        finally:
            warning.cancel()
        self.waiting_reason = ""
        self.info = await call_actor(self._actor.start)
        self.phase = Phase.RUNNING
        self.was_running = True
        record_replica_started(self.spec.id.deployment_id, time.time() - self.started_at)
        self._changed()

    async def _require_actor(self) -> None:
        """Find the actor that a previous controller created, or raise."""
        await self._find_actor()
        if self._actor is None:
            raise _ActorMissingError("its process no longer existed after the restart of the controller")

    async def _find_actor(self) -> None:
        """Look the actor up by name."""
        if self._actor is None:
            self._actor = await self._call_engine(
                lambda: _get_or_none(skate.get_actor, self._name, NAMESPACE)
            )

    @property
    def _name(self) -> str:
        return self.spec.id.actor_name

    async def _call_engine(self, function: Callable[[], T]) -> T:
        """Run a blocking call in a thread. The call continues if the awaiting task is cancelled."""
        self._engine_call = asyncio.get_running_loop().run_in_executor(None, function)
        found: T = await asyncio.shield(self._engine_call)
        return found

    def _report_waiting(self) -> None:
        needed = required_resources(self.spec.options)
        available = skate.available_resources()
        free = {name: available.get(name, 0.0) for name in needed}
        self.waiting_reason = (
            f"A replica waits for its resources: it needs {needed}, and {free} is free. Stop something, or give the "
            "deployment fewer resources with ray_actor_options."
        )
        logger.warning("%s: %s", self.spec.id, self.waiting_reason)
        self._changed()

    async def _create(self) -> None:
        options = dict(self.spec.options.ray_actor_options)
        options.setdefault("num_cpus", defaults.REPLICA_NUM_CPUS)
        options["runtime_env"] = actor_runtime_env(options.get("runtime_env"))
        if node_resource := per_node_resource(self.spec.id.deployment_id, self.spec.options):
            options["resources"] = {**(options.get("resources") or {}), **node_resource}
        if self._lease is not None:
            options["scheduling_strategy"] = await self._lease.scheduling_strategy()
        replica_class = actor_class(
            Replica, self.spec.id.deployment_id.to_replica_actor_class_name()
        ).options(
            name=self._name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_concurrency=_ACTOR_THREADS,
            max_restarts=0,
            **options,
        )
        self._actor = await self._call_engine(lambda: replica_class.remote(self.spec))

    async def _watch_health(self) -> None:
        options = self.spec.options
        failed = 0
        while True:
            await asyncio.sleep(self.spec.options.health_check_period_s)
            options = self.spec.options
            try:
                async with asyncio.timeout(options.health_check_timeout_s):
                    await call_actor(self._actor.check_health)
                failed = 0
            except RayActorError:
                raise
            except (Exception, TimeoutError, GetTimeoutError) as error:
                failed += 1
                logger.warning("Health check %d of %s failed: %s", failed, self.spec.id, error)
                if failed >= _MAX_FAILED_HEALTH_CHECKS:
                    raise _UnhealthyError(
                        f"{self.spec.id} failed {failed} health checks in a row; the last one: {error!r}"
                    ) from None

    async def reconfigure(self, deployment: DeploymentSpec) -> None:
        """Apply options that do not require a new replica."""
        self.spec = spec = replace(self.spec, options=deployment.options)
        await self._require_actor()
        await call_actor(self._actor.reconfigure, spec)
        self.deployment = deployment

    async def stats(self) -> dict[str, Any]:
        """Return the replica's current load and measurements."""
        await self._require_actor()
        answer: dict[str, Any] = await call_actor(self._actor.stats)
        return answer

    def stop(self, grace_s: float | None = None) -> None:
        """Stop the replica after it has answered its open requests.

        Args:
            grace_s: The time limit for open requests; `graceful_shutdown_timeout_s` if not given.
        """
        if self._stop_task is None:
            self.phase = Phase.STOPPING
            self._changed()
            self._stop_task = asyncio.ensure_future(self._stop(grace_s))

    async def _stop(self, grace_s: float | None = None) -> None:
        grace = self.spec.options.graceful_shutdown_timeout_s if grace_s is None else grace_s
        began = time.perf_counter()
        if self.was_running:
            await self._find_actor()
        if self._actor is not None and self.was_running:
            try:
                async with asyncio.timeout(grace + 1):
                    await call_actor(self._actor.stop, grace)
            except (RayActorError, TimeoutError):
                logger.debug("%s ended before the stop, or did not stop in time.", self.spec.id)
            except Exception:
                logger.exception("%s failed to stop. Killing its process.", self.spec.id)
        if self._supervision is not None:
            self._supervision.cancel()
        await self._clean_up()
        record_replica_stopped(self.spec.id.deployment_id, time.perf_counter() - began)
        self.stopped.set()
        self._changed()

    def kill(self) -> None:
        """Kill the replica without waiting."""
        if self._supervision is not None:
            self._supervision.cancel()
        if self._actor is not None:
            skate.kill(self._actor)

    async def _clean_up(self) -> None:
        if self._engine_call is not None:
            await asyncio.wait([self._engine_call])  # the call might otherwise create an actor later
        await self._find_actor()
        loop = asyncio.get_running_loop()
        if self._actor is not None:
            await loop.run_in_executor(None, skate.kill, self._actor)
        if self._lease is not None:
            await self._lease.release()


def _get_or_none(find: Callable[..., Any], *names: str) -> Any:
    try:
        return find(*names)
    except ValueError:
        return None
