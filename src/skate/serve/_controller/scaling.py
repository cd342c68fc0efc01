"""Autoscaling: turns the reports of callers and replicas into target numbers of replicas.

`skate.serve._autoscaling` makes the decisions, without clock and network.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

from skate.serve._autoscaling.application import ApplicationAutoscaler, Replicas
from skate.serve._autoscaling.deployment import DeploymentAutoscaler
from skate.serve._controller.applications import ApplicationReconciler
from skate.serve._controller.deployments import DeploymentReconciler
from skate.serve._controller.health import ControllerHealth
from skate.serve._controller.metrics import record_handle_delay, record_replica_delay, record_scaling
from skate.serve._controller.replicas import ReplicaSupervisor
from skate.serve._controller.rollout import Phase
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve._runtime.loop import ServeLoop
from skate.serve._schema.statuses import DeploymentStatus
from skate.serve._wire.updates import LoadReport

__all__ = ["AutoscalingManager"]

logger = logging.getLogger("skate.serve")


class AutoscalingManager:
    """Scales all autoscaled deployments. Runs on the controller's loop.

    Args:
        health: Records the delays of reports and the durations of processing them.
    """

    def __init__(self, health: ControllerHealth) -> None:
        self._health = health
        self._groups: dict[str, list[_ScalingGroup]] = {}  # by application
        self._by_deployment: dict[str, _ScalingGroup] = {}
        self._policy_loops: dict[str, ServeLoop] = {}  # run the policies of users, by application

    def manage(self, app: ApplicationReconciler, initial_delay_s: float = 0.0) -> None:
        """Scale the deployments of an application by its current specification.

        Args:
            app: The application.
            initial_delay_s: The delay before the first decision.
        """
        name = app.spec.name
        if any(group.is_deciding for group in self._groups.get(name, ())):
            self._stop_policy_loop(name)  # the policy may hang and must not block the next one
        kept = {key: group.members[key] for group in self._groups.get(name, ()) for key in group.members}
        self._close_groups(name)
        members = {
            reconciler.spec.id.key: _ScaledDeployment.create(reconciler, kept.get(reconciler.spec.id.key))
            for reconciler in app.deployments.values()
            if reconciler.spec.options.is_autoscaled and not reconciler.is_deleting
        }
        policy = (app.spec.config or {}).get("autoscaling_policy")
        if policy and members:
            groups = [_ScalingGroup(members, lambda: self._policy_loop(name), self._health, policy)]
        else:
            groups = [
                _ScalingGroup({key: member}, lambda: self._policy_loop(name), self._health)
                for key, member in members.items()
            ]
        self._groups[name] = groups
        for group in groups:
            self._by_deployment.update(dict.fromkeys(group.members, group))
            group.start(initial_delay_s)

    def stop(self, app: str) -> None:
        """Stop scaling an application."""
        self._close_groups(app)
        self._stop_policy_loop(app)

    def _policy_loop(self, app: str) -> ServeLoop:
        """Return the loop that runs an application's policies, which may block and may create tasks."""
        if app not in self._policy_loops:
            self._policy_loops[app] = ServeLoop("skate-serve-policy")
        return self._policy_loops[app]

    def _stop_policy_loop(self, app: str) -> None:
        loop = self._policy_loops.pop(app, None)
        if loop is not None:
            loop.call(loop.loop.stop)  # without waiting: the thread ends once the policy returns

    def _close_groups(self, app: str) -> None:
        for group in self._groups.pop(app, ()):
            group.close()
            for key in group.members:
                self._by_deployment.pop(key, None)

    def handle_report(self, caller: str, report: LoadReport) -> None:
        """Process a caller's report of its requests."""
        group = self._by_deployment.get(report.deployment)
        if group is not None:
            with self._health.from_handles.measure():
                group.handle_report(caller, report)

    def handle_disconnect(self, caller: str) -> None:
        """Remove a caller and its requests."""
        for group in self._by_deployment.values():
            group.handle_disconnect(caller)

    def handle_replica_change(self, key: str) -> None:
        """React to started or stopped replicas of a deployment."""
        group = self._by_deployment.get(key)
        if group is not None:
            group.handle_replica_change(key)

    def close(self) -> None:
        """Stop scaling all applications."""
        for app in list(self._groups):
            self.stop(app)


class _ScaledDeployment:
    """An autoscaled deployment: its reconciler, its autoscaler and the latest reports of callers."""

    def __init__(self, reconciler: DeploymentReconciler, scaler: DeploymentAutoscaler) -> None:
        self.reconciler = reconciler
        self.scaler = scaler
        self.running: dict[str, Mapping[str, int]] = {}  # by caller, then by replica
        self._known: set[ReplicaID] = set()

    @classmethod
    def create(
        cls, reconciler: DeploymentReconciler, previous: _ScaledDeployment | None
    ) -> _ScaledDeployment:
        """Return the scaled deployment of a reconciler, keeping the measurements of the previous one."""
        if previous is not None and previous.reconciler is reconciler:
            previous.sync_config()
            return previous
        id, options = reconciler.spec.id, reconciler.spec.options
        assert options.autoscaling_config is not None
        scaler = DeploymentAutoscaler(
            options.autoscaling_config, id.name, id.app_name, time.monotonic(), gang_size=options.gang_size
        )
        member = cls(reconciler, scaler)
        member.sync_config()
        return member

    @property
    def id(self) -> DeploymentID:
        return self.reconciler.spec.id

    @property
    def is_scalable(self) -> bool:
        """Whether autoscaling may change the number of replicas."""
        reconciler = self.reconciler
        return (
            reconciler.spec.options.is_autoscaled
            and not reconciler.is_deleting
            and reconciler.status is not DeploymentStatus.DEPLOY_FAILED
        )

    def sync_config(self) -> None:
        """Apply the deployment's current configuration, which an update or a rollback may have changed."""
        spec = self.reconciler.spec
        options = spec.options
        config = options.autoscaling_config
        self.scaler.set_target_capacity(spec.target_capacity, spec.is_ramping_up)
        if config is not None and config is not self.scaler.config:
            self.scaler.reconfigure(config, options.gang_size)

    def running_ids(self) -> list[ReplicaID]:
        replicas = self.reconciler.replicas.values()
        return [each.spec.id for each in replicas if each.phase is Phase.RUNNING]

    def handle_report(self, caller: str, report: LoadReport) -> None:
        self.running[caller] = report.running
        self._update_loads()
        running = {ReplicaID(id, self.id): float(count) for id, count in report.running.items()}
        self.scaler.record(caller, float(report.queued), running, time.monotonic())

    def handle_disconnect(self, caller: str) -> None:
        if self.running.pop(caller, None) is not None:
            self._update_loads()
            self.scaler.forget(caller)

    def handle_replica_change(self) -> None:
        self.sync_config()
        known = {each.spec.id for each in self.reconciler.replicas.values()}
        for id in self._known - known:
            self.scaler.forget(id)
        self._known = known

    def _update_loads(self) -> None:
        """Tell the reconciler the load of each replica; the least busy replicas stop first."""
        loads: dict[str, int] = {}
        for running in self.running.values():
            for id, count in running.items():
                loads[id] = loads.get(id, 0) + count
        self.reconciler.loads = loads


class _ScalingGroup:
    """Deployments with a common decision: one deployment, or all of an application that has a policy."""

    def __init__(
        self,
        members: dict[str, _ScaledDeployment],
        loop: Callable[[], ServeLoop],
        health: ControllerHealth,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.members = members
        self._policy_loop = loop
        self._health = health
        self._application_scaler: ApplicationAutoscaler | None = None
        if policy is not None:
            from skate.serve._config.autoscaling import policy_from_fields

            scalers = {key: member.scaler for key, member in members.items()}
            self._application_scaler = ApplicationAutoscaler(policy_from_fields(policy), scalers)
        self._is_closed = False
        self._first_decision_at = 0.0
        self._decision: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._pending_changes: dict[Hashable, Callable[[], None]] = {}  # the newest change per source
        self._stats_calls: dict[ReplicaID, asyncio.Task[None]] = {}
        self._failing: set[ReplicaID] = set()
        self._without_metrics: set[ReplicaID] = set()  # replicas without measurements of their own
        self._polling: asyncio.Task[None] | None = None
        self._ensure_polling()

    @property
    def is_deciding(self) -> bool:
        """Whether a policy call is under way."""
        return self._deciding is not None

    @property
    def _runs_user_code(self) -> bool:
        return self._application_scaler is not None or not all(
            member.scaler.config.policy.is_default_policy_function() for member in self.members.values()
        )

    def close(self) -> None:
        self._is_closed = True
        for handle in (
            self._decision,
            self._timer,
            self._polling,
            self._deciding,
            *self._stats_calls.values(),
        ):
            if handle is not None:
                handle.cancel()

    def handle_report(self, caller: str, report: LoadReport) -> None:
        member = self.members[report.deployment]
        delay = max(time.time() - report.at, 0.0)
        self._health.handle_delays.add(delay)
        record_handle_delay(member.id, delay)
        self._apply_change((member.id, caller), lambda: member.handle_report(caller, report))

    def handle_disconnect(self, caller: str) -> None:
        for member in self.members.values():
            self._apply_change((member.id, caller), functools.partial(member.handle_disconnect, caller))

    def handle_replica_change(self, key: str) -> None:
        self._apply_change(key, self.members[key].handle_replica_change)
        self._ensure_polling()

    def _apply_change(self, by: Hashable, change: Callable[[], None]) -> None:
        """Apply a measurement and decide, after a policy call that may be under way."""
        if self._deciding is not None:
            self._pending_changes[by] = change
            return
        change()
        self.decide_soon()

    def start(self, initial_delay_s: float) -> None:
        """Schedule the first decision after a delay in which reports arrive."""
        self._first_decision_at = time.monotonic() + initial_delay_s
        self.decide_soon()

    def decide_soon(self) -> None:
        """Decide at the end of this loop iteration, once for all reports of the iteration."""
        if self._decision is None and not self._is_closed:
            self._decision = asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        self._decision = None
        if self._is_closed or self._deciding is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        scalable = {key: member for key, member in self.members.items() if member.is_scalable}
        if not scalable:
            return
        now = time.monotonic()
        if now < self._first_decision_at:
            self._timer = asyncio.get_running_loop().call_later(
                self._first_decision_at - now, self.decide_soon
            )
            return
        observed = {
            key: (member.running_ids(), member.reconciler.target, member) for key, member in scalable.items()
        }

        def make_decision() -> dict[str, int]:
            began = time.perf_counter()
            try:
                if self._application_scaler is not None:
                    return self._application_scaler.decide(
                        {key: Replicas(len(ids), target) for key, (ids, target, _) in observed.items()}, now
                    )
                return {
                    key: member.scaler.decide(len(ids), target, now, ids)
                    for key, (ids, target, member) in observed.items()
                }
            finally:
                duration = time.perf_counter() - began
                scope = "deployment" if self._application_scaler is None else "application"
                for _, _, member in observed.values():
                    record_scaling(member.scaler, now, duration, scope)

        async def make_decision_on_loop() -> dict[str, int]:
            return make_decision()

        if self._runs_user_code:
            # On another loop, because a policy may query a database or hang.
            decision_future = asyncio.wrap_future(self._policy_loop().submit(make_decision_on_loop()))
            self._deciding = asyncio.ensure_future(self._apply_later(decision_future))
        else:
            self._apply(make_decision())

    async def _apply_later(self, targets: Awaitable[dict[str, int]]) -> None:
        found = await targets
        self._deciding = None
        pending, self._pending_changes = self._pending_changes, {}
        for change in pending.values():
            change()
        self._apply(found)

    def _apply(self, targets: Mapping[str, int]) -> None:
        for key, target in targets.items():
            member = self.members[key]
            error = (
                member.scaler.error if self._application_scaler is None else self._application_scaler.error
            )
            self._annotate_error(member.reconciler, error)
            if member.is_scalable and not self._is_closed:
                member.reconciler.scale(target, by_load=True)
        if self._is_closed:
            return
        now = time.monotonic()
        dues = [scaler.next_due(now) for scaler in self._scalers()]
        next_due = min((each for each in dues if each is not None), default=None)
        if next_due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, next_due - now), self.decide_soon)

    def _scalers(self) -> list[DeploymentAutoscaler] | list[ApplicationAutoscaler]:
        if self._application_scaler is not None:
            return [self._application_scaler]
        return [member.scaler for member in self.members.values()]

    def _annotate_error(self, reconciler: DeploymentReconciler, error: str | None) -> None:
        annotation = (
            ""
            if error is None
            else f"The autoscaling policy failed, and the number of replicas is unchanged: {error}"
        )
        if annotation != reconciler.annotation:
            reconciler.annotation = annotation
            if annotation:
                logger.warning("%s: %s", reconciler.spec.id, annotation)

    def _ensure_polling(self) -> None:
        running = self._running()
        self._without_metrics &= {replica.spec.id for _, replica in running}
        if (self._polling is None or self._polling.done()) and self._replicas_to_poll(running):
            self._polling = asyncio.ensure_future(self._poll_replicas())

    def _running(self) -> list[tuple[str, ReplicaSupervisor]]:
        return [
            (key, replica)
            for key, member in self.members.items()
            for replica in member.reconciler.replicas.values()
            if replica.phase is Phase.RUNNING
        ]

    def _replicas_to_poll(
        self, running: list[tuple[str, ReplicaSupervisor]]
    ) -> list[tuple[str, ReplicaSupervisor]]:
        """Return the replicas to poll: all for a user's policy, otherwise those with measurements."""
        if self._runs_user_code:
            return running
        return [(key, replica) for key, replica in running if replica.spec.id not in self._without_metrics]

    async def _poll_replicas(self) -> None:
        """Poll replicas for their measurements every `metrics_interval_s`, while there are replicas to poll."""
        while replicas := self._replicas_to_poll(self._running()):
            for key, replica in replicas:
                # At most one call per replica, because each call occupies a thread there.
                if replica.spec.id not in self._stats_calls:
                    task = asyncio.ensure_future(self._poll_replica(key, replica.spec.id, replica.stats))
                    self._stats_calls[replica.spec.id] = task
            await asyncio.sleep(min(m.scaler.config.metrics_interval_s for m in self.members.values()))

    async def _poll_replica(
        self, key: str, id: ReplicaID, stats: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        try:
            found = await stats()
            custom = {name: float(value) for name, value in found["custom"].items()}
        except Exception as error:
            if id not in self._failing:
                self._failing.add(id)
                logger.warning("%s did not report its measurements for autoscaling: %s", id, error)
            return
        finally:
            del self._stats_calls[id]
        self._failing.discard(id)
        delay = max(time.time() - found["at"], 0.0)
        self._health.replica_delays.add(delay)
        record_replica_delay(id.deployment_id, delay)
        if not found["measures"]:
            self._without_metrics.add(id)
        if not self._runs_user_code:
            return  # callers have already reported the input of the default policy
        running = float(found["running"])
        with self._health.from_replicas.measure():
            self._apply_change(
                id, lambda: self.members[key].scaler.record_replica(id, running, custom, time.monotonic())
            )
