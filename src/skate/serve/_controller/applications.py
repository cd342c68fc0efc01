"""Reconciliation of one application."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from skate.serve._build.spec import ApplicationSpec, DeploymentSpec
from skate.serve._controller.deployments import DeploymentReconciler
from skate.serve._controller.health import ControllerHealth
from skate.serve._controller.metrics import record_application
from skate.serve._controller.persistence import LoadObject
from skate.serve._controller.records import ApplicationRecord
from skate.serve._schema.statuses import ApplicationStatus, ApplicationStatusOverview, DeploymentStatus
from skate.serve._wire.updates import DeploymentUpdate

__all__ = ["ApplicationReconciler"]


class ApplicationReconciler:
    """Reconciles the deployments of an application and derives its status. Runs on the controller's loop.

    Args:
        spec: The desired application.
        publish: Called with a deployment's key and its routing update whenever the update changes.
        mark_changed: Called after every change, to schedule a write of the state.
        health: Records the durations of reconciliations.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        publish: Callable[[str, DeploymentUpdate], None],
        mark_changed: Callable[[], None],
        health: ControllerHealth,
    ) -> None:
        self.spec = spec
        self.deployments: dict[str, DeploymentReconciler] = {}
        self.deployed_at = time.time()
        self.is_deleting = False
        self.is_building = False
        self.build_error = ""  # why the new specification failed; the old deployments keep running
        self.changed = asyncio.Condition()
        self._publish = publish
        self._mark_changed = mark_changed
        self._health = health
        # A specification with and without its deployments.
        self._spec_without_deployments: tuple[ApplicationSpec, ApplicationSpec] | None = None
        self._notifications: set[asyncio.Task[None]] = set()

    @classmethod
    def from_record(
        cls,
        record: ApplicationRecord,
        load_object: LoadObject,
        actors: Collection[str],
        publish: Callable[[str, DeploymentUpdate], None],
        mark_changed: Callable[[], None],
        health: ControllerHealth,
    ) -> ApplicationReconciler:
        """Return the reconciler of an application that a previous controller recorded.

        See `DeploymentReconciler.recover`.
        """
        base: ApplicationSpec = load_object(record.spec)
        app = cls(
            replace(base, deployments=tuple(map(load_object, record.parts))), publish, mark_changed, health
        )
        app._spec_without_deployments = app.spec, base
        app.deployed_at = record.deployed_at
        app.is_deleting, app.is_building = record.is_deleting, record.is_building
        app.build_error = record.build_error
        for name, each in record.deployments.items():
            reconciler = app._add(name, load_object(each.spec))
            reconciler.recover(each, load_object, actors)
        return app

    def record(self, key_of: Callable[[Any], str]) -> ApplicationRecord:
        """Return the state that a restarted controller needs."""
        spec = self.spec
        if self._spec_without_deployments is None or self._spec_without_deployments[0] is not spec:
            self._spec_without_deployments = spec, replace(spec, deployments=())
        return ApplicationRecord(
            spec=key_of(self._spec_without_deployments[1]),
            parts=[key_of(each) for each in spec.deployments],
            deployments={name: each.record(key_of) for name, each in self.deployments.items()},
            deployed_at=self.deployed_at,
            is_deleting=self.is_deleting,
            is_building=self.is_building,
            build_error=self.build_error,
        )

    @property
    def actors(self) -> list[str]:
        """The names of the actors of all deployments."""
        return [name for reconciler in self.deployments.values() for name in reconciler.actors]

    def step(self) -> None:
        """Run one reconciliation step of each deployment."""
        for reconciler in list(self.deployments.values()):
            reconciler.step()

    def deploy(self, spec: ApplicationSpec) -> None:
        """Replace the desired application."""
        self.spec = spec
        self.deployed_at = time.time()
        self.is_deleting = self.is_building = False
        self.build_error = ""
        wanted = {each.id.name: each for each in spec.deployments}
        for name, reconciler in list(self.deployments.items()):
            if name not in wanted:
                reconciler.delete()
        for name, each in wanted.items():
            known = self.deployments.get(name)
            if known is not None:
                known.deploy(each)
            else:
                self._add(name, each).step()

    def _add(self, name: str, spec: DeploymentSpec) -> DeploymentReconciler:
        reconciler = DeploymentReconciler(
            spec, functools.partial(self._publish, spec.id.key), self._notify, self._health
        )
        self.deployments[name] = reconciler
        return reconciler

    def begin_building(self, spec: ApplicationSpec) -> None:
        """Set a specification that is still being built; running deployments keep running meanwhile."""
        self.spec = spec
        self.deployed_at = time.time()
        self.is_deleting = False
        self.is_building = True
        self.build_error = ""
        self._notify()

    def fail(self, build_error: str) -> None:
        """Record that the desired application could not be built or deployed."""
        self.is_building = False
        self.build_error = build_error
        self._notify()

    def delete(self) -> None:
        """Stop all deployments."""
        self.is_deleting = True
        for reconciler in list(self.deployments.values()):
            reconciler.delete()
        self._notify()

    @property
    def status(self) -> ApplicationStatus:
        """The status that follows from the statuses of the deployments."""
        if self.is_deleting:
            return ApplicationStatus.DELETING
        if self.build_error:
            return ApplicationStatus.DEPLOY_FAILED
        if self.is_building:
            return ApplicationStatus.DEPLOYING
        states = {each.status for each in self.deployments.values() if not each.is_deleting}
        if DeploymentStatus.DEPLOY_FAILED in states:
            return ApplicationStatus.DEPLOY_FAILED
        if DeploymentStatus.UNHEALTHY in states:
            return ApplicationStatus.UNHEALTHY
        if DeploymentStatus.UPDATING in states or any(each.is_deleting for each in self.deployments.values()):
            return ApplicationStatus.DEPLOYING
        return ApplicationStatus.RUNNING

    @property
    def message(self) -> str:
        """The reasons for a status other than RUNNING, if there are any."""
        if self.build_error:
            return self.build_error
        return "\n".join(
            f"Deployment '{name}': {message}"
            for name, each in self.deployments.items()
            if (message := each.status_message)
        )

    @property
    def overview(self) -> ApplicationStatusOverview:
        """The public view of the status."""
        return ApplicationStatusOverview(
            self.status,
            self.message,
            self.deployed_at,
            {name: each.overview for name, each in self.deployments.items()},
        )

    @property
    def is_deleted(self) -> bool:
        """Whether the application was deleted and all of its actors are gone."""
        return self.is_deleting and not self.deployments

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this application holds."""
        async with self.changed:
            await self.changed.wait_for(condition)

    def _notify(self) -> None:
        with self._health.applications.measure():
            self._record_metrics()
        self._mark_changed()

        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.ensure_future(notify())
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    def _record_metrics(self) -> None:
        record_application(self)
        for name, reconciler in list(self.deployments.items()):
            if reconciler.is_deleted:
                del self.deployments[name]
        if self.is_deleted:
            record_application(self)
