"""Reconciliation of one deployment: its replicas, its deployment actors and its status."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from skate.serve._autoscaling.replica_counts import round_up_to_gangs
from skate.serve._build.spec import DeploymentSpec
from skate.serve._config.options import DeploymentOptions, needs_new_replicas, needs_reconfigure
from skate.serve._controller.deployment_actors import DeploymentActors, DeploymentActorSupervisor
from skate.serve._controller.health import ControllerHealth
from skate.serve._controller.persistence import LoadObject
from skate.serve._controller.placement import (
    BundleLease,
    count_fitting,
    create_gang,
    explain_excess_replicas,
    explain_unplaceable,
    lease_gang_bundles,
    lease_own_group,
    max_local_replicas,
    recover_leases,
    required_resources,
)
from skate.serve._controller.records import DeploymentRecord
from skate.serve._controller.replicas import ReplicaSupervisor
from skate.serve._controller.rollout import Phase, decide
from skate.serve._observability.options import current_options
from skate.serve._replica import ReplicaSpec
from skate.serve._runtime.ids import ReplicaID, new_id
from skate.serve._schema.statuses import (
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)
from skate.serve._wire.updates import DeploymentUpdate, RouterUpdate

__all__ = ["DeploymentReconciler"]

logger = logging.getLogger("skate.serve")

# A scaling status may replace these statuses; it does not hide an update or a failure.
_STABLE_STATUSES = (DeploymentStatus.HEALTHY, DeploymentStatus.UPSCALING, DeploymentStatus.DOWNSCALING)
_START_ATTEMPTS_PER_REPLICA = 3
_MAX_RETRY_DELAY_S = 30.0


class DeploymentReconciler:
    """Reconciles a deployment with its specification. Runs on the controller's loop.

    Args:
        spec: The desired deployment.
        publish: Called with the routing update for callers in each step.
        changed: Called whenever the status may have changed.
        health: Records the durations of reconciliations.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        publish: Callable[[DeploymentUpdate], None],
        changed: Callable[[], None],
        health: ControllerHealth,
    ) -> None:
        self.spec = spec
        self.target = spec.first_replicas
        self.status = DeploymentStatus.UPDATING
        self.trigger = DeploymentStatusTrigger.CONFIG_UPDATE_STARTED
        self.message = ""
        self.annotation = ""  # an autoscaling error, which does not change the status
        self.loads: dict[str, int] = {}
        self.replicas: dict[str, ReplicaSupervisor] = {}
        self.is_deleting = False
        self._deployment_actors = DeploymentActors(
            spec.id, self.step_soon, self._handle_deployment_actor_failure
        )
        self._last_healthy: DeploymentSpec | None = None  # the specification to roll back to
        self._failed_gangs: set[str] = set()  # gangs with a failed replica, until their other replicas stop
        self._warned_problem = ""
        # A specification, and why its replicas cannot be placed.
        self._unplaceable_cache: tuple[DeploymentSpec, str] | None = None
        self._failures = 0  # failed starts since the deployment was last healthy
        self._retry_timer: asyncio.TimerHandle | None = None
        self._publish = publish
        self._changed = changed
        self._health = health
        self._tasks: set[asyncio.Task[None]] = set()

    def record(self, key_of: Callable[[Any], str]) -> DeploymentRecord:
        """Return the state that a restarted controller needs."""
        return DeploymentRecord(
            spec=key_of(self.spec),
            target=self.target,
            status=self.status,
            trigger=self.trigger,
            message=self.message,
            is_deleting=self.is_deleting,
            last_healthy=None if self._last_healthy is None else key_of(self._last_healthy),
            failures=self._failures,
            replicas=[each.record(key_of) for each in self.replicas.values() if not each.stopped.is_set()],
        )

    def recover(self, record: DeploymentRecord, load_object: LoadObject, actors: Collection[str]) -> None:
        """Take over the replicas and deployment actors of a previous controller.

        Args:
            record: The recorded state.
            load_object: Returns the object that a key in the record names.
            actors: The names of the existing actors.
        """
        self.target = record.target
        self.status, self.trigger, self.message = record.status, record.trigger, record.message
        self.is_deleting = record.is_deleting
        self._last_healthy = None if record.last_healthy is None else load_object(record.last_healthy)
        self._failures = record.failures
        leases = recover_leases(self.spec.id, record.replicas, load_object)
        for each in record.replicas:
            replica = self._add_replica(
                load_object(each.spec), each.id, each.rank, each.world_size, leases[each.id]
            )
            self._deployment_actors.recover(replica.deployment, actors)
            replica.recover(each)
            is_current = replica.spec.version == self.spec.version and replica.phase is Phase.RUNNING
            if is_current and needs_reconfigure(replica.spec.options, self.spec.options):
                self._spawn(self._reconfigure(replica))
        self._deployment_actors.recover(self.spec, actors)

    @property
    def actors(self) -> list[str]:
        """The names of the actors of replicas, deployment actors and gangs' placement groups."""
        replicas = [each.spec for each in self.replicas.values()]
        gangs = [spec.gang.pg_name for spec in replicas if spec.gang is not None]
        return [*(spec.id.actor_name for spec in replicas), *self._deployment_actors.names, *gangs]

    @property
    def status_message(self) -> str:
        """An error, an autoscaling problem, or the resources that a replica waits for, if any."""
        delays = (replica.waiting_reason for replica in self.replicas.values() if replica.waiting_reason)
        return self.message or self.annotation or next(delays, "") or self._placement_problem

    @property
    def overview(self) -> DeploymentStatusOverview:
        """The public view of the status."""
        states: dict[ReplicaState, int] = {}
        for replica in self.replicas.values():
            state = ReplicaState(replica.phase.value)
            states[state] = states.get(state, 0) + 1
        return DeploymentStatusOverview(self.status, self.trigger, states, self.status_message)

    @property
    def is_deleted(self) -> bool:
        """Whether the deployment was deleted and all of its actors are gone."""
        return self.is_deleting and not self.replicas and self._deployment_actors.are_stopped

    def deploy(self, spec: DeploymentSpec) -> None:
        """Replace the specification."""
        old = self.spec
        if not needs_new_replicas(old.options, spec.options) and spec.options.version is not None:
            spec = replace(spec, version=old.version, init=old.init, code=old.code)
        self.spec = spec
        self.is_deleting = False
        scaling = spec.options.autoscaling_config
        is_other = spec.version != old.version or bool(spec.options.differences(old.options))
        if (
            scaling is None
            or not old.options.is_autoscaled
            or (scaling.initial_replicas is not None and is_other)
        ):
            self.target = spec.first_replicas
        self._failures = 0
        self._set_status(DeploymentStatus.UPDATING, DeploymentStatusTrigger.CONFIG_UPDATE_STARTED)
        if spec.version == old.version and needs_reconfigure(old.options, spec.options):
            for replica in self._in_phase(Phase.RUNNING):
                self._spawn(self._reconfigure(replica))
        self.step()

    def scale(self, target: int, *, by_load: bool) -> None:
        """Change the target number of replicas."""
        target = round_up_to_gangs(target, self.spec.options.gang_size)
        if target == self.target:
            return
        up = target > self.target
        self.target = target
        if self.status in _STABLE_STATUSES:
            self._set_status(
                DeploymentStatus.UPSCALING if up else DeploymentStatus.DOWNSCALING,
                DeploymentStatusTrigger.AUTOSCALING
                if by_load
                else DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
            )
        self.step()

    def delete(self) -> None:
        """Stop all replicas and deployment actors."""
        self.is_deleting = True
        self.target = 0
        self._set_status(DeploymentStatus.UPDATING, DeploymentStatusTrigger.DELETING)
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        for replica in list(self.replicas.values()):
            replica.stop()
        self.step()

    def kill(self) -> None:
        """Kill all replicas without waiting."""
        for replica in self.replicas.values():
            replica.kill()
        self._deployment_actors.kill()

    def step(self) -> None:
        """Run one reconciliation step: start and stop replicas, publish an update, refresh the status."""
        with self._health.iteration():
            self._step()

    def _step(self) -> None:
        for id, replica in list(self.replicas.items()):
            if replica.stopped.is_set():
                del self.replicas[id]
                self.loads.pop(id, None)
        self._failed_gangs &= {replica.gang for replica in self.replicas.values()}
        if not self.is_deleting:
            self._warn_of_placement_problem()
            self._roll_out()
        self._deployment_actors.stop_other_versions(self._versions_in_use)
        self._publish(self._make_update())
        self._update_status()
        self._changed()

    @property
    def _placement_problem(self) -> str:
        """Why wanted replicas cannot be placed on this machine, or an empty string."""
        return self._unplaceable or explain_excess_replicas(self.spec.options, self.target)

    @property
    def _unplaceable(self) -> str:
        if self._unplaceable_cache is None or self._unplaceable_cache[0] is not self.spec:
            self._unplaceable_cache = self.spec, explain_unplaceable(self.spec.options)
        return self._unplaceable_cache[1]

    def _warn_of_placement_problem(self) -> None:
        problem = self._placement_problem
        if problem and problem != self._warned_problem:
            logger.warning("%s: %s", self.spec.id, problem)
        self._warned_problem = problem

    def _roll_out(self) -> None:
        if self._retry_timer is not None or self.status is DeploymentStatus.DEPLOY_FAILED:
            return
        if not self._deployment_actors.ensure_running(self.spec):
            return  # replicas look the actors up in their constructors
        views = [replica.view(self.loads.get(id, 0)) for id, replica in self.replicas.items()]
        is_update = any(each.version != self.spec.version for each in views)
        room = count_fitting(required_resources(self.spec.options)) if is_update else 0
        limit = max_local_replicas(self.spec.options)
        available = self.target if limit is None else max(0, limit - len(views))
        size = self.spec.options.gang_size
        batch = max(1, math.ceil(self.spec.options.rolling_update_percentage * self.target))
        decision = decide(
            views,
            target=self.target,
            version=self.spec.version,
            room=min(room, available),
            batch=batch,
            gang_size=size,
        )
        for id in decision.stop:
            self.replicas[id].stop()
        for _ in range(min(decision.start, available) // size):
            self._start([new_id() for _ in range(size)])

    def _start(self, ids: list[str]) -> None:
        """Start one replica, or all replicas of a gang."""
        spec = self.spec
        if spec.options.gang_scheduling_config is None:
            leases = [lease_own_group(ReplicaID(id, spec.id), spec.options) for id in ids]
        else:
            leases = [*lease_gang_bundles(spec.options, create_gang(spec.id, ids))]
        for id, lease in zip(ids, leases, strict=True):
            self._start_one(id, lease)

    def _start_one(self, id: str, lease: BundleLease | None) -> None:
        taken = {
            replica.spec.rank for replica in self.replicas.values() if replica.phase is not Phase.STOPPING
        }
        rank = next(number for number in range(len(taken) + 1) if number not in taken)
        self._add_replica(self.spec, id, rank, self.target, lease).start()

    def _add_replica(
        self, spec: DeploymentSpec, id: str, rank: int, world_size: int, lease: BundleLease | None
    ) -> ReplicaSupervisor:
        supervisor = self.replicas[id] = ReplicaSupervisor(
            ReplicaSpec(
                id=ReplicaID(id, spec.id),
                code=spec.code,
                init=spec.init,
                options=spec.options,
                version=spec.version,
                rank=rank,
                world_size=world_size,
                is_ingress=spec.is_ingress,
                observability=current_options(),
                gang=None if lease is None else lease.gang,
            ),
            spec,
            self.step_soon,
            self._handle_replica_failure,
            lease,
        )
        return supervisor

    def step_soon(self) -> None:
        """Schedule a step after the current callback."""
        asyncio.get_running_loop().call_soon(self.step)

    @property
    def _versions_in_use(self) -> set[str]:
        versions = {replica.spec.version for replica in self.replicas.values()}
        if not self.is_deleting and self.status is not DeploymentStatus.DEPLOY_FAILED:
            versions.add(self.spec.version)
        return versions

    def _handle_deployment_actor_failure(
        self, actor: DeploymentActorSupervisor, error: BaseException
    ) -> None:
        failure = RuntimeError(f"Deployment actor '{actor.name}' failed: {error}")
        if actor.was_running and not self.is_deleting:
            logger.warning("%s: %s. Starting it again.", self.spec.id, failure)
            self._set_status(
                DeploymentStatus.UNHEALTHY, DeploymentStatusTrigger.DEPLOYMENT_ACTOR_FAILED, str(failure)
            )
        elif actor.spec.version == self.spec.version and not self.is_deleting:
            self._handle_start_failure(failure, DeploymentStatusTrigger.DEPLOYMENT_ACTOR_FAILED)
        self.step()

    def _handle_replica_failure(self, replica: ReplicaSupervisor, error: BaseException) -> None:
        if self.is_deleting or replica.gang in self._failed_gangs:
            self.step()
            return
        if replica.gang:
            self._failed_gangs.add(replica.gang)
            for other in self.replicas.values():
                if other.gang == replica.gang and other.phase is not Phase.STOPPING:
                    other.stop(grace_s=0)  # its gang can no longer succeed
        if replica.was_running:
            logger.warning("%s ended: %s. Starting another one.", replica.spec.id, error)
            self._set_status(
                DeploymentStatus.UNHEALTHY,
                DeploymentStatusTrigger.HEALTH_CHECK_FAILED,
                f"A replica ended and is being replaced: {error}",
            )
        if replica.spec.version == self.spec.version and not replica.was_running:
            self._handle_start_failure(error)
        self.step()

    def _handle_start_failure(
        self,
        error: BaseException,
        trigger: DeploymentStatusTrigger = DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
    ) -> None:
        self._failures += 1
        limit = min(
            self.spec.options.max_constructor_retry_count, max(1, self.target) * _START_ATTEMPTS_PER_REPLICA
        )
        logger.warning(
            "A replica or actor of %s failed to start (attempt %d of %d).",
            self.spec.id,
            self._failures,
            limit,
        )
        last_healthy = self._last_healthy
        if self._failures < limit:
            self.message = (
                f"The deployment failed to start {self._failures} times in a row. The last error:\n{error}"
            )
            delay_s = min(_MAX_RETRY_DELAY_S, 0.05 * 2**self._failures)
            self._retry_timer = asyncio.get_running_loop().call_later(delay_s, self._retry)
        elif last_healthy is not None and last_healthy.version == self.spec.version:
            # The same code was healthy before: a dependency may recover.
            self._set_status(DeploymentStatus.UNHEALTHY, trigger, str(error))
            self._retry_timer = asyncio.get_running_loop().call_later(_MAX_RETRY_DELAY_S, self._retry)
        else:
            self._give_up(error, trigger, last_healthy)

    def _give_up(
        self, error: BaseException, trigger: DeploymentStatusTrigger, last_healthy: DeploymentSpec | None
    ) -> None:
        message = f"The deployment failed to start {self._failures} times in a row. The last error:\n{error}"
        serving = [
            each
            for each in self._in_phase(Phase.RUNNING)
            if last_healthy and each.spec.version == last_healthy.version
        ]
        if last_healthy is not None and serving:
            message += "\nThe previous version keeps serving."
            self.spec = last_healthy
            self.target = last_healthy.first_replicas
        self._set_status(DeploymentStatus.DEPLOY_FAILED, trigger, message)
        for replica in list(self.replicas.values()):
            if replica not in serving:
                replica.stop()

    def _retry(self) -> None:
        self._retry_timer = None
        self.step()

    async def _reconfigure(self, replica: ReplicaSupervisor) -> None:
        try:
            await replica.reconfigure(self.spec)
        except Exception as error:
            self._set_status(
                DeploymentStatus.UNHEALTHY,
                DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
                f"reconfigure failed: {error}",
            )
        self.step()

    def _make_update(self) -> DeploymentUpdate:
        options = self.spec.options
        scaling = options.autoscaling_config
        return DeploymentUpdate(
            [replica.describe() for replica in self._in_phase(Phase.RUNNING)],
            max_queued=options.max_queued_requests,
            retry_after_s=options.backpressure_retry_after_s,
            status_code=options.backpressure_status_code,
            retry_lost=self.spec.retry_lost,
            report_every_s=0.0 if scaling is None else min(0.5, scaling.metrics_interval_s),
            exists=not self.is_deleting and not self._never_started,
            router=_router_update(options),
            obstacle=self._unplaceable,
        )

    @property
    def _never_started(self) -> bool:
        return self.status is DeploymentStatus.DEPLOY_FAILED and not self._in_phase(Phase.RUNNING)

    def _update_status(self) -> None:
        """Set the status to HEALTHY if all replicas and actors match the specification."""
        if self.is_deleting or self._tasks or self.status is DeploymentStatus.DEPLOY_FAILED:
            return
        running = self._in_phase(Phase.RUNNING)
        is_complete = len(running) == self.target == len(
            self.replicas
        ) and self._deployment_actors.are_running(self.spec)
        if not is_complete or any(each.spec.version != self.spec.version for each in running):
            return
        self._last_healthy = self.spec
        self._failures = 0
        if self.status is not DeploymentStatus.HEALTHY:
            completed = {
                DeploymentStatus.UPSCALING: DeploymentStatusTrigger.UPSCALE_COMPLETED,
                DeploymentStatus.DOWNSCALING: DeploymentStatusTrigger.DOWNSCALE_COMPLETED,
            }.get(self.status, DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED)
            self._set_status(DeploymentStatus.HEALTHY, completed)

    def _in_phase(self, phase: Phase) -> list[ReplicaSupervisor]:
        return [replica for replica in self.replicas.values() if replica.phase is phase]

    def _set_status(
        self, status: DeploymentStatus, trigger: DeploymentStatusTrigger, message: str = ""
    ) -> None:
        self.status, self.trigger, self.message = status, trigger, message
        self._changed()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._handle_task_done)

    def _handle_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.step()


def _router_update(options: DeploymentOptions) -> RouterUpdate | None:
    config = options.request_router_config
    if config is None or config.is_default_request_router():
        return None
    return RouterUpdate(
        str(config.request_router_class),
        config.packed_class,
        config.request_router_kwargs,
        config.initial_backoff_s,
        config.backoff_multiplier,
        config.max_backoff_s,
    )
