"""Autoscaling at work: what callers and replicas report becomes numbers of replicas.

The decisions themselves are made in `skate.serve._autoscaling`, which knows neither clock nor network.
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
from skate.serve._controller.application import ApplicationKeeper
from skate.serve._controller.deployment import DeploymentKeeper
from skate.serve._controller.health import Health
from skate.serve._controller.metrics import (
    record_handle_delay,
    record_replica_delay,
    record_scaling,
)
from skate.serve._controller.replica import ReplicaKeeper
from skate.serve._controller.rollout import Phase
from skate.serve._ids import DeploymentID, ReplicaID
from skate.serve._loop import ServeLoop
from skate.serve._schema.statuses import DeploymentStatus
from skate.serve._wire.updates import LoadReport

__all__ = ["Scaling"]

logger = logging.getLogger("skate.serve")


class Scaling:
    """Scales every deployment that wants it. On the controller's loop.

    Args:
        health: Where it is noted how late reports come, and how long it takes to take them in.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._groups: dict[str, list[_Group]] = {}  # by application
        self._by_deployment: dict[str, _Group] = {}
        self._policies: dict[str, ServeLoop] = {}  # where policies of users run, by application

    def follow(self, app: ApplicationKeeper, pause_s: float = 0.0) -> None:
        """Scale the deployments of an application as it is now.

        Args:
            app: The application.
            pause_s: How long to wait before the first decision.
        """
        name = app.spec.name
        if any(group.is_deciding for group in self._groups.get(name, ())):
            self._end_policies(name)  # the policy may hang, and the next one must not wait for it
        kept = {key: group.members[key] for group in self._groups.get(name, ()) for key in group.members}
        self._drop_groups(name)
        members = {
            keeper.spec.id.key: _Member.of(keeper, kept.get(keeper.spec.id.key))
            for keeper in app.deployments.values()
            if keeper.spec.options.is_autoscaled and not keeper.is_deleting
        }
        policy = (app.spec.config or {}).get("autoscaling_policy")
        if policy and members:
            groups = [_Group(members, lambda: self._loop(name), self._health, policy)]
        else:
            groups = [
                _Group({key: member}, lambda: self._loop(name), self._health)
                for key, member in members.items()
            ]
        self._groups[name] = groups
        for group in groups:
            self._by_deployment.update(dict.fromkeys(group.members, group))
            group.begin(pause_s)

    def drop(self, app: str) -> None:
        """Scale an application no more."""
        self._drop_groups(app)
        self._end_policies(app)

    def _loop(self, app: str) -> ServeLoop:
        """Return the loop of an application's policies: they may block, and may have tasks of their own."""
        if app not in self._policies:
            self._policies[app] = ServeLoop("skate-serve-policy")
        return self._policies[app]

    def _end_policies(self, app: str) -> None:
        loop = self._policies.pop(app, None)
        if loop is not None:
            loop.call(loop.loop.stop)  # nobody waits for it: it ends when its policy lets it

    def _drop_groups(self, app: str) -> None:
        for group in self._groups.pop(app, ()):
            group.close()
            for key in group.members:
                self._by_deployment.pop(key, None)

    def heard(self, caller: str, report: LoadReport) -> None:
        """Take what a caller tells of its requests."""
        group = self._by_deployment.get(report.deployment)
        if group is not None:
            with self._health.from_handles.timed():
                group.heard(caller, report)

    def left(self, caller: str) -> None:
        """Forget a caller: its requests are gone with it."""
        for group in self._by_deployment.values():
            group.left(caller)

    def stepped(self, key: str) -> None:
        """Take note that replicas of a deployment may have come or gone."""
        group = self._by_deployment.get(key)
        if group is not None:
            group.stepped(key)

    def close(self) -> None:
        """Scale nothing any more."""
        for app in list(self._groups):
            self.drop(app)


class _Member:
    """An autoscaled deployment: its keeper, its autoscaler, and what callers said last."""

    def __init__(self, keeper: DeploymentKeeper, scaler: DeploymentAutoscaler) -> None:
        self.keeper = keeper
        self.scaler = scaler
        self.running: dict[str, Mapping[str, int]] = {}  # by caller, then by replica
        self._known: set[ReplicaID] = set()

    @classmethod
    def of(cls, keeper: DeploymentKeeper, before: _Member | None) -> _Member:
        """Return the member of a deployment; measurements stay when it is deployed anew."""
        if before is not None and before.keeper is keeper:
            before.adopt()
            return before
        id, options = keeper.spec.id, keeper.spec.options
        assert options.autoscaling_config is not None
        scaler = DeploymentAutoscaler(
            options.autoscaling_config, id.name, id.app_name, time.monotonic(), gang_size=options.gang_size
        )
        member = cls(keeper, scaler)
        member.adopt()
        return member

    @property
    def id(self) -> DeploymentID:
        return self.keeper.spec.id

    @property
    def is_free(self) -> bool:
        """Whether its number of replicas may change: not while it goes, or has failed."""
        keeper = self.keeper
        return (
            keeper.spec.options.is_autoscaled
            and not keeper.is_deleting
            and keeper.status is not DeploymentStatus.DEPLOY_FAILED
        )

    def adopt(self) -> None:
        """Decide by the deployment's configuration as it is now: it may have been changed, or gone back to."""
        spec = self.keeper.spec
        options = spec.options
        config = options.autoscaling_config
        self.scaler.set_target_capacity(spec.capacity, spec.capacity_is_growing)
        if config is not None and config is not self.scaler.config:
            self.scaler.reconfigure(config, options.gang_size)

    def running_ids(self) -> list[ReplicaID]:
        replicas = self.keeper.replicas.values()
        return [each.spec.id for each in replicas if each.phase is Phase.RUNNING]

    def heard(self, caller: str, report: LoadReport) -> None:
        self.running[caller] = report.running
        self._weigh()
        running = {ReplicaID(id, self.id): float(count) for id, count in report.running.items()}
        self.scaler.record(caller, float(report.queued), running, time.monotonic())

    def left(self, caller: str) -> None:
        if self.running.pop(caller, None) is not None:
            self._weigh()
            self.scaler.forget(caller)

    def stepped(self) -> None:
        self.adopt()
        known = {each.spec.id for each in self.keeper.replicas.values()}
        for id in self._known - known:
            self.scaler.forget(id)
        self._known = known

    def _weigh(self) -> None:
        """Let the keeper know which replicas are the least busy: those go first."""
        loads: dict[str, int] = {}
        for running in self.running.values():
            for id, count in running.items():
                loads[id] = loads.get(id, 0) + count
        self.keeper.loads = loads


class _Group:
    """Deployments that are decided about together: one, or all of an application that has a policy of its own."""

    def __init__(
        self,
        members: dict[str, _Member],
        loop: Callable[[], ServeLoop],
        health: Health,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.members = members
        self._loop = loop
        self._health = health
        self._together: ApplicationAutoscaler | None = None
        if policy is not None:
            from skate.serve._config.autoscaling import policy_of

            scalers = {key: member.scaler for key, member in members.items()}
            self._together = ApplicationAutoscaler(policy_of(policy), scalers)
        self._is_closed = False
        self._quiet_until = 0.0
        self._soon: asyncio.Handle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._meanwhile: dict[Hashable, Callable[[], None]] = {}  # the newest by whom it comes from
        self._questions: dict[ReplicaID, asyncio.Task[None]] = {}
        self._unwell: set[ReplicaID] = set()
        self._silent: set[ReplicaID] = set()  # replicas that measure nothing of their own
        self._asking: asyncio.Task[None] | None = None
        self._see_whom_to_ask()

    @property
    def is_deciding(self) -> bool:
        """Whether a policy has been asked and has not answered."""
        return self._deciding is not None

    @property
    def _runs_user_code(self) -> bool:
        return self._together is not None or not all(
            member.scaler.config.policy.is_default_policy_function() for member in self.members.values()
        )

    def close(self) -> None:
        self._is_closed = True
        for handle in (self._soon, self._due, self._asking, self._deciding, *self._questions.values()):
            if handle is not None:
                handle.cancel()

    def heard(self, caller: str, report: LoadReport) -> None:
        member = self.members[report.deployment]
        late = max(time.time() - report.at, 0.0)
        self._health.handle_delays.add(late)
        record_handle_delay(member.id, late)
        self._note((member.id, caller), lambda: member.heard(caller, report))

    def left(self, caller: str) -> None:
        for member in self.members.values():
            self._note((member.id, caller), functools.partial(member.left, caller))

    def stepped(self, key: str) -> None:
        self._note(key, self.members[key].stepped)
        self._see_whom_to_ask()

    def _note(self, by: Hashable, change: Callable[[], None]) -> None:
        """Take a measurement, and decide; after the decision that a policy is making in a thread just now."""
        if self._deciding is not None:
            self._meanwhile[by] = change
            return
        change()
        self.decide_soon()

    def begin(self, pause_s: float) -> None:
        """Decide for the first time, after a pause in which reports come in."""
        self._quiet_until = time.monotonic() + pause_s
        self.decide_soon()

    def decide_soon(self) -> None:
        """Decide at the end of this turn of the loop, once for all that was reported in it."""
        if self._soon is None and not self._is_closed:
            self._soon = asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        self._soon = None
        if self._is_closed or self._deciding is not None:
            return
        if self._due is not None:
            self._due.cancel()
            self._due = None
        free = {key: member for key, member in self.members.items() if member.is_free}
        if not free:
            return
        now = time.monotonic()
        if now < self._quiet_until:
            self._due = asyncio.get_running_loop().call_later(self._quiet_until - now, self.decide_soon)
            return
        seen = {key: (member.running_ids(), member.keeper.target, member) for key, member in free.items()}

        def decided() -> dict[str, int]:
            began = time.perf_counter()
            try:
                if self._together is not None:
                    return self._together.decide(
                        {key: Replicas(len(ids), target) for key, (ids, target, _) in seen.items()}, now
                    )
                return {
                    key: member.scaler.decide(len(ids), target, now, ids)
                    for key, (ids, target, member) in seen.items()
                }
            finally:
                took = time.perf_counter() - began
                scope = "deployment" if self._together is None else "application"
                for _, _, member in seen.values():
                    record_scaling(member.scaler, now, took, scope)

        async def decided_there() -> dict[str, int]:
            return decided()

        if self._runs_user_code:
            # A policy may ask a database, or hang: others must not wait for it.
            asked = asyncio.wrap_future(self._loop().submit(decided_there()))
            self._deciding = asyncio.ensure_future(self._apply_later(asked))
        else:
            self._apply(decided())

    async def _apply_later(self, targets: Awaitable[dict[str, int]]) -> None:
        found = await targets
        self._deciding = None
        meanwhile, self._meanwhile = self._meanwhile, {}
        for change in meanwhile.values():
            change()
        self._apply(found)

    def _apply(self, targets: Mapping[str, int]) -> None:
        for key, target in targets.items():
            member = self.members[key]
            error = member.scaler.error if self._together is None else self._together.error
            self._tell_error(member.keeper, error)
            if member.is_free and not self._is_closed:
                member.keeper.scale(target, by_load=True)
        if self._is_closed:
            return
        now = time.monotonic()
        dues = [scaler.next_due(now) for scaler in self._scalers()]
        due = min((each for each in dues if each is not None), default=None)
        if due is not None:
            self._due = asyncio.get_running_loop().call_later(max(0.0, due - now), self.decide_soon)

    def _scalers(self) -> list[DeploymentAutoscaler] | list[ApplicationAutoscaler]:
        if self._together is not None:
            return [self._together]
        return [member.scaler for member in self.members.values()]

    def _tell_error(self, keeper: DeploymentKeeper, error: str | None) -> None:
        remark = (
            ""
            if error is None
            else f"The autoscaling policy failed, and the number of replicas stays: {error}"
        )
        if remark != keeper.remark:
            keeper.remark = remark
            if remark:
                logger.warning("%s: %s", keeper.spec.id, remark)

    def _see_whom_to_ask(self) -> None:
        running = self._running()
        self._silent &= {replica.spec.id for _, replica in running}
        if (self._asking is None or self._asking.done()) and self._to_ask(running):
            self._asking = asyncio.ensure_future(self._ask_replicas())

    def _running(self) -> list[tuple[str, ReplicaKeeper]]:
        return [
            (key, replica)
            for key, member in self.members.items()
            for replica in member.keeper.replicas.values()
            if replica.phase is Phase.RUNNING
        ]

    def _to_ask(self, running: list[tuple[str, ReplicaKeeper]]) -> list[tuple[str, ReplicaKeeper]]:
        """Return the replicas to ask: a policy of the user's wants to hear of all, otherwise those that measure."""
        if self._runs_user_code:
            return running
        return [(key, replica) for key, replica in running if replica.spec.id not in self._silent]

    async def _ask_replicas(self) -> None:
        """Ask replicas what they measured, as often as the configuration says, while there is one to ask."""
        while replicas := self._to_ask(self._running()):
            for key, replica in replicas:
                # One that has not answered is not asked again: each question takes a thread there.
                if replica.spec.id not in self._questions:
                    task = asyncio.ensure_future(self._ask(key, replica.spec.id, replica.stats))
                    self._questions[replica.spec.id] = task
            await asyncio.sleep(min(m.scaler.config.metrics_interval_s for m in self.members.values()))

    async def _ask(self, key: str, id: ReplicaID, stats: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        try:
            found = await stats()
            custom = {name: float(value) for name, value in found["custom"].items()}
        except Exception as error:
            if id not in self._unwell:
                self._unwell.add(id)
                logger.warning("%s did not tell its measurements for autoscaling: %s", id, error)
            return
        finally:
            del self._questions[id]
        self._unwell.discard(id)
        late = max(time.time() - found["at"], 0.0)
        self._health.replica_delays.add(late)
        record_replica_delay(id.deployment_id, late)
        if not found["measures"]:
            self._silent.add(id)
        if not self._runs_user_code:
            return  # callers have told what the default policy goes by, and have told it earlier
        running = float(found["running"])
        with self._health.from_replicas.timed():
            self._note(
                id, lambda: self.members[key].scaler.record_replica(id, running, custom, time.monotonic())
            )
