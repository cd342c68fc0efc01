"""One deployment as the controller keeps it: what it should be, its replicas, how it fares."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from skate.serve._autoscaling.capacity import in_gangs
from skate.serve._build.spec import DeploymentSpec
from skate.serve._config.deployment import DeploymentOptions, needs_new_replicas, needs_reconfigure
from skate.serve._controller.health import Health
from skate.serve._controller.memory import Recall
from skate.serve._controller.place import Seat, gang_seats, new_gang, own_seat, seats_again
from skate.serve._controller.records import DeploymentRecord
from skate.serve._controller.replica import ReplicaKeeper
from skate.serve._controller.resources import most_here, needs_of, room_for, too_many_here, why_unplaceable
from skate.serve._controller.rollout import Phase, decide
from skate.serve._controller.shared_actors import SharedActor, SharedActors
from skate.serve._ids import ReplicaID, new_id
from skate.serve._observability.options import current_options
from skate.serve._replica import ReplicaSpec
from skate.serve._schema.statuses import (
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)
from skate.serve._wire.updates import DeploymentUpdate, RouterUpdate

__all__ = ["DeploymentKeeper"]

logger = logging.getLogger("skate.serve")

# Where a change of the number is news; an update or a failure is more important.
_SETTLED = (DeploymentStatus.HEALTHY, DeploymentStatus.UPSCALING, DeploymentStatus.DOWNSCALING)
_TRIES_PER_REPLICA = 3
_LONGEST_PAUSE_S = 30.0


class DeploymentKeeper:
    """Brings a deployment to what it should be, and keeps it there. On the controller's loop.

    Args:
        spec: What to deploy.
        post: Called with what callers have to know, whenever it changes.
        changed: Called whenever the status may have changed.
        health: Where the controller's turns are counted.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        post: Callable[[DeploymentUpdate], None],
        changed: Callable[[], None],
        health: Health,
    ) -> None:
        self.spec = spec
        self.target = spec.first_replicas
        self.status = DeploymentStatus.UPDATING
        self.trigger = DeploymentStatusTrigger.CONFIG_UPDATE_STARTED
        self.message = ""
        self.remark = ""  # of autoscaling, which does not change how the deployment stands
        self.loads: dict[str, int] = {}
        self.replicas: dict[str, ReplicaKeeper] = {}
        self.is_deleting = False
        self._shared = SharedActors(spec.id, self.step_soon, self._shared_actor_failed)
        self._stable: DeploymentSpec | None = None  # the last one that was healthy: what is gone back to
        self._broken: set[str] = set()  # gangs of which a replica has failed, while some of it is left
        self._warned_of = ""
        self._placeable: tuple[DeploymentSpec, str] | None = (
            None  # a specification, and what hinders its replicas
        )
        self._failures = 0  # to start, since the deployment was last healthy
        self._pause: asyncio.TimerHandle | None = None
        self._post = post
        self._changed = changed
        self._health = health
        self._tasks: set[asyncio.Task[None]] = set()

    def record(self, key_of: Callable[[Any], str]) -> DeploymentRecord:
        """Return what another controller would have to know."""
        return DeploymentRecord(
            spec=key_of(self.spec),
            target=self.target,
            status=self.status,
            trigger=self.trigger,
            message=self.message,
            is_deleting=self.is_deleting,
            stable=None if self._stable is None else key_of(self._stable),
            failures=self._failures,
            replicas=[each.record(key_of) for each in self.replicas.values() if not each.is_over.is_set()],
        )

    def adopt(self, record: DeploymentRecord, recall: Recall, actors: Collection[str]) -> None:
        """Go on where another controller was killed, with the replicas and the shared actors that it had.

        Args:
            record: What that one knew.
            recall: How to read its keys.
            actors: The names of the actors that there are.
        """
        self.target = record.target
        self.status, self.trigger, self.message = record.status, record.trigger, record.message
        self.is_deleting = record.is_deleting
        self._stable = None if record.stable is None else recall(record.stable)
        self._failures = record.failures
        seats = seats_again(self.spec.id, record.replicas, recall)
        for each in record.replicas:
            replica = self._keeper_of(recall(each.spec), each.id, each.rank, each.world_size, seats[each.id])
            self._shared.adopt(replica.deployment, actors)
            replica.adopt(each)
            is_current = replica.spec.version == self.spec.version and replica.phase is Phase.RUNNING
            if is_current and needs_reconfigure(replica.spec.options, self.spec.options):
                self._spawn(self._reconfigure(replica))
        self._shared.adopt(self.spec, actors)

    @property
    def actors(self) -> list[str]:
        """The names of the actors of its replicas, of those that they share, and of what holds gangs."""
        replicas = [each.spec for each in self.replicas.values()]
        gangs = [spec.gang.pg_name for spec in replicas if spec.gang is not None]
        return [*(spec.id.actor_name for spec in replicas), *self._shared.names, *gangs]

    @property
    def said(self) -> str:
        """What there is to say: what is wrong, what holds autoscaling up, or what a replica waits for."""
        delays = (replica.delay for replica in self.replicas.values() if replica.delay)
        return self.message or self.remark or next(delays, "") or self._obstacle

    @property
    def overview(self) -> DeploymentStatusOverview:
        """The status as users see it."""
        states: dict[ReplicaState, int] = {}
        for replica in self.replicas.values():
            state = ReplicaState(replica.phase.value)
            states[state] = states.get(state, 0) + 1
        return DeploymentStatusOverview(self.status, self.trigger, states, self.said)

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted and nothing of it is left."""
        return self.is_deleting and not self.replicas and self._shared.are_gone

    def deploy(self, spec: DeploymentSpec) -> None:
        """Change what it should be."""
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
        self._set(DeploymentStatus.UPDATING, DeploymentStatusTrigger.CONFIG_UPDATE_STARTED)
        if spec.version == old.version and needs_reconfigure(old.options, spec.options):
            for replica in self._of_phase(Phase.RUNNING):
                self._spawn(self._reconfigure(replica))
        self.step()

    def scale(self, target: int, *, by_load: bool) -> None:
        """Change how many replicas there should be."""
        target = in_gangs(target, self.spec.options.gang_size)
        if target == self.target:
            return
        up = target > self.target
        self.target = target
        if self.status in _SETTLED:
            self._set(
                DeploymentStatus.UPSCALING if up else DeploymentStatus.DOWNSCALING,
                DeploymentStatusTrigger.AUTOSCALING
                if by_load
                else DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
            )
        self.step()

    def delete(self) -> None:
        """Stop all of it."""
        self.is_deleting = True
        self.target = 0
        self._set(DeploymentStatus.UPDATING, DeploymentStatusTrigger.DELETING)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for replica in list(self.replicas.values()):
            replica.stop()
        self.step()

    def kill(self) -> None:
        """End every replica at once."""
        for replica in self.replicas.values():
            replica.kill()
        self._shared.kill()

    def step(self) -> None:
        """Do what comes next, tell callers, and see how things stand."""
        with self._health.turn():
            self._step()

    def _step(self) -> None:
        for id, replica in list(self.replicas.items()):
            if replica.is_over.is_set():
                del self.replicas[id]
                self.loads.pop(id, None)
        self._broken &= {replica.gang for replica in self.replicas.values()}
        if not self.is_deleting:
            self._warn_of_obstacle()
            self._roll()
        self._shared.keep(self._versions_in_use)
        self._post(self._news())
        self._judge()
        self._changed()

    @property
    def _obstacle(self) -> str:
        """Why replicas that are, or will be, wanted cannot be had on this machine, or nothing."""
        return self._unplaceable or too_many_here(self.spec.options, self.target)

    @property
    def _unplaceable(self) -> str:
        if self._placeable is None or self._placeable[0] is not self.spec:
            self._placeable = self.spec, why_unplaceable(self.spec.options)
        return self._placeable[1]

    def _warn_of_obstacle(self) -> None:
        obstacle = self._obstacle
        if obstacle and obstacle != self._warned_of:
            logger.warning("%s: %s", self.spec.id, obstacle)
        self._warned_of = obstacle

    def _roll(self) -> None:
        if self._pause is not None or self.status is DeploymentStatus.DEPLOY_FAILED:
            return
        if not self._shared.bring(self.spec):
            return  # replicas find the actors that they share when they start
        seen = [replica.seen(self.loads.get(id, 0)) for id, replica in self.replicas.items()]
        is_update = any(each.version != self.spec.version for each in seen)
        room = room_for(needs_of(self.spec.options)) if is_update else 0
        most = most_here(self.spec.options)
        left = self.target if most is None else max(0, most - len(seen))
        size = self.spec.options.gang_size
        batch = max(1, math.ceil(self.spec.options.rolling_update_percentage * self.target))
        decision = decide(
            seen,
            target=self.target,
            version=self.spec.version,
            room=min(room, left),
            batch=batch,
            gang_size=size,
        )
        for id in decision.stop:
            self.replicas[id].stop()
        for _ in range(min(decision.start, left) // size):
            self._start([new_id() for _ in range(size)])

    def _start(self, ids: list[str]) -> None:
        """Start a replica; several, where they make a gang."""
        spec = self.spec
        if spec.options.gang_scheduling_config is None:
            seats = [own_seat(ReplicaID(id, spec.id), spec.options) for id in ids]
        else:
            seats = [*gang_seats(spec.options, new_gang(spec.id, ids))]
        for id, seat in zip(ids, seats, strict=True):
            self._start_one(id, seat)

    def _start_one(self, id: str, seat: Seat | None) -> None:
        taken = {
            replica.spec.rank for replica in self.replicas.values() if replica.phase is not Phase.STOPPING
        }
        rank = next(number for number in range(len(taken) + 1) if number not in taken)
        self._keeper_of(self.spec, id, rank, self.target, seat).start()

    def _keeper_of(
        self, spec: DeploymentSpec, id: str, rank: int, world_size: int, seat: Seat | None
    ) -> ReplicaKeeper:
        keeper = self.replicas[id] = ReplicaKeeper(
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
                gang=None if seat is None else seat.gang,
            ),
            spec,
            self.step_soon,
            self._replica_failed,
            seat,
        )
        return keeper

    def step_soon(self) -> None:
        """Do what comes next, once what is being done is done."""
        asyncio.get_running_loop().call_soon(self.step)

    @property
    def _versions_in_use(self) -> set[str]:
        versions = {replica.spec.version for replica in self.replicas.values()}
        if not self.is_deleting and self.status is not DeploymentStatus.DEPLOY_FAILED:
            versions.add(self.spec.version)
        return versions

    def _shared_actor_failed(self, actor: SharedActor, error: BaseException) -> None:
        told = RuntimeError(f"Deployment actor '{actor.name}' failed: {error}")
        if actor.was_running and not self.is_deleting:
            logger.warning("%s: %s. It is started again.", self.spec.id, told)
            self._set(DeploymentStatus.UNHEALTHY, DeploymentStatusTrigger.DEPLOYMENT_ACTOR_FAILED, str(told))
        elif actor.spec.version == self.spec.version and not self.is_deleting:
            self._start_failed(told, DeploymentStatusTrigger.DEPLOYMENT_ACTOR_FAILED)
        self.step()

    def _replica_failed(self, replica: ReplicaKeeper, error: BaseException) -> None:
        if self.is_deleting or replica.gang in self._broken:
            self.step()
            return
        if replica.gang:
            self._broken.add(replica.gang)
            for other in self.replicas.values():
                if other.gang == replica.gang and other.phase is not Phase.STOPPING:
                    other.stop(grace_s=0)  # what it does for its gang cannot succeed any more
        if replica.was_running:
            logger.warning("%s ended: %s. Another one is started.", replica.spec.id, error)
            self._set(
                DeploymentStatus.UNHEALTHY,
                DeploymentStatusTrigger.HEALTH_CHECK_FAILED,
                f"A replica ended and is being replaced: {error}",
            )
        if replica.spec.version == self.spec.version and not replica.was_running:
            self._start_failed(error)
        self.step()

    def _start_failed(
        self,
        error: BaseException,
        why: DeploymentStatusTrigger = DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
    ) -> None:
        self._failures += 1
        limit = min(self.spec.options.max_constructor_retry_count, max(1, self.target) * _TRIES_PER_REPLICA)
        logger.warning("A part of %s failed to start (%d of %d tries).", self.spec.id, self._failures, limit)
        stable = self._stable
        if self._failures < limit:
            self.message = (
                f"The deployment failed to start {self._failures} times in a row. The last error:\n{error}"
            )
            pause = min(_LONGEST_PAUSE_S, 0.05 * 2**self._failures)
            self._pause = asyncio.get_running_loop().call_later(pause, self._try_again)
        elif stable is not None and stable.version == self.spec.version:
            # It was healthy once and is the same code: what it depends on may come back.
            self._set(DeploymentStatus.UNHEALTHY, why, str(error))
            self._pause = asyncio.get_running_loop().call_later(_LONGEST_PAUSE_S, self._try_again)
        else:
            self._give_up(error, why, stable)

    def _give_up(
        self, error: BaseException, why: DeploymentStatusTrigger, stable: DeploymentSpec | None
    ) -> None:
        message = f"The deployment failed to start {self._failures} times in a row. The last error:\n{error}"
        serving = [
            each for each in self._of_phase(Phase.RUNNING) if stable and each.spec.version == stable.version
        ]
        if stable is not None and serving:
            message += "\nThe version before it goes on serving."
            self.spec = stable
            self.target = stable.first_replicas
        self._set(DeploymentStatus.DEPLOY_FAILED, why, message)
        for replica in list(self.replicas.values()):
            if replica not in serving:
                replica.stop()

    def _try_again(self) -> None:
        self._pause = None
        self.step()

    async def _reconfigure(self, replica: ReplicaKeeper) -> None:
        try:
            await replica.reconfigure(self.spec)
        except Exception as error:
            self._set(
                DeploymentStatus.UNHEALTHY,
                DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
                f"reconfigure failed: {error}",
            )
        self.step()

    def _news(self) -> DeploymentUpdate:
        options = self.spec.options
        scaling = options.autoscaling_config
        return DeploymentUpdate(
            [replica.told() for replica in self._of_phase(Phase.RUNNING)],
            max_queued=options.max_queued_requests,
            retry_after_s=options.backpressure_retry_after_s,
            status_code=options.backpressure_status_code,
            retry_lost=self.spec.retry_lost,
            report_every_s=0.0 if scaling is None else min(0.5, scaling.metrics_interval_s),
            exists=not self.is_deleting and not self._never_came_up,
            router=_router_of(options),
            obstacle=self._unplaceable,
        )

    @property
    def _never_came_up(self) -> bool:
        return self.status is DeploymentStatus.DEPLOY_FAILED and not self._of_phase(Phase.RUNNING)

    def _judge(self) -> None:
        """See whether everything is as it should be."""
        if self.is_deleting or self._tasks or self.status is DeploymentStatus.DEPLOY_FAILED:
            return
        running = self._of_phase(Phase.RUNNING)
        is_complete = len(running) == self.target == len(self.replicas) and self._shared.are_running(
            self.spec
        )
        if not is_complete or any(each.spec.version != self.spec.version for each in running):
            return
        self._stable = self.spec
        self._failures = 0
        if self.status is not DeploymentStatus.HEALTHY:
            completed = {
                DeploymentStatus.UPSCALING: DeploymentStatusTrigger.UPSCALE_COMPLETED,
                DeploymentStatus.DOWNSCALING: DeploymentStatusTrigger.DOWNSCALE_COMPLETED,
            }.get(self.status, DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED)
            self._set(DeploymentStatus.HEALTHY, completed)

    def _of_phase(self, phase: Phase) -> list[ReplicaKeeper]:
        return [replica for replica in self.replicas.values() if replica.phase is phase]

    def _set(self, status: DeploymentStatus, trigger: DeploymentStatusTrigger, message: str = "") -> None:
        self.status, self.trigger, self.message = status, trigger, message
        self._changed()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.step()


def _router_of(options: DeploymentOptions) -> RouterUpdate | None:
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
