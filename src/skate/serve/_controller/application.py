"""One application as the controller keeps it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from skate.serve._build.spec import ApplicationSpec, DeploymentSpec
from skate.serve._controller.deployment import DeploymentKeeper
from skate.serve._controller.health import Health
from skate.serve._controller.memory import Recall
from skate.serve._controller.metrics import record_application
from skate.serve._controller.records import ApplicationRecord
from skate.serve._schema.statuses import ApplicationStatus, ApplicationStatusOverview, DeploymentStatus
from skate.serve._wire.updates import DeploymentUpdate

__all__ = ["ApplicationKeeper"]


class ApplicationKeeper:
    """Its deployments, and what their states together mean. On the controller's loop.

    Args:
        spec: What it should be.
        post: Called with what callers of a deployment have to know, whenever it changes.
        note: Called whenever anything has changed.
        health: Where the controller's turns are counted.
    """

    def __init__(
        self,
        spec: ApplicationSpec,
        post: Callable[[str, DeploymentUpdate], None],
        note: Callable[[], None],
        health: Health,
    ) -> None:
        self.spec = spec
        self.deployments: dict[str, DeploymentKeeper] = {}
        self.deployed_at = time.time()
        self.is_deleting = False
        self.is_building = False
        self.problem = ""  # with what it should be; what it was before goes on
        self.changed = asyncio.Condition()
        self._post = post
        self._note = note
        self._health = health
        self._bare: tuple[ApplicationSpec, ApplicationSpec] | None = (
            None  # a specification with and without its parts
        )
        self._notices: set[asyncio.Task[None]] = set()

    @classmethod
    def adopted(
        cls,
        record: ApplicationRecord,
        recall: Recall,
        actors: Collection[str],
        post: Callable[[str, DeploymentUpdate], None],
        note: Callable[[], None],
        health: Health,
    ) -> ApplicationKeeper:
        """Return the keeper of an application that another controller kept; see `DeploymentKeeper.adopt`."""
        bare: ApplicationSpec = recall(record.spec)
        app = cls(replace(bare, deployments=tuple(map(recall, record.parts))), post, note, health)
        app._bare = app.spec, bare
        app.deployed_at = record.deployed_at
        app.is_deleting, app.is_building = record.is_deleting, record.is_building
        app.problem = record.problem
        for name, each in record.deployments.items():
            keeper = app._add(name, recall(each.spec))
            keeper.adopt(each, recall, actors)
        return app

    def record(self, key_of: Callable[[Any], str]) -> ApplicationRecord:
        """Return what another controller would have to know."""
        spec = self.spec
        if self._bare is None or self._bare[0] is not spec:
            self._bare = spec, replace(spec, deployments=())
        return ApplicationRecord(
            spec=key_of(self._bare[1]),
            parts=[key_of(each) for each in spec.deployments],
            deployments={name: each.record(key_of) for name, each in self.deployments.items()},
            deployed_at=self.deployed_at,
            is_deleting=self.is_deleting,
            is_building=self.is_building,
            problem=self.problem,
        )

    @property
    def actors(self) -> list[str]:
        """The names of the actors of its deployments."""
        return [name for keeper in self.deployments.values() for name in keeper.actors]

    def step(self) -> None:
        """Do what comes next in each deployment."""
        for keeper in list(self.deployments.values()):
            keeper.step()

    def deploy(self, spec: ApplicationSpec) -> None:
        """Change what the application should be."""
        self.spec = spec
        self.deployed_at = time.time()
        self.is_deleting = self.is_building = False
        self.problem = ""
        wanted = {each.id.name: each for each in spec.deployments}
        for name, keeper in list(self.deployments.items()):
            if name not in wanted:
                keeper.delete()
        for name, each in wanted.items():
            known = self.deployments.get(name)
            if known is not None:
                known.deploy(each)
            else:
                self._add(name, each).step()

    def _add(self, name: str, spec: DeploymentSpec) -> DeploymentKeeper:
        keeper = DeploymentKeeper(
            spec, functools.partial(self._post, spec.id.key), self._notify, self._health
        )
        self.deployments[name] = keeper
        return keeper

    def begin(self, spec: ApplicationSpec) -> None:
        """Wait for what the application should be, which is being built; what runs goes on until then."""
        self.spec = spec
        self.deployed_at = time.time()
        self.is_deleting = False
        self.is_building = True
        self.problem = ""
        self._notify()

    def fail(self, problem: str) -> None:
        """Take note that what the application should be cannot be deployed."""
        self.is_building = False
        self.problem = problem
        self._notify()

    def delete(self) -> None:
        """Stop everything."""
        self.is_deleting = True
        for keeper in list(self.deployments.values()):
            keeper.delete()
        self._notify()

    @property
    def status(self) -> ApplicationStatus:
        """What the states of the deployments together mean."""
        if self.is_deleting:
            return ApplicationStatus.DELETING
        if self.problem:
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
        """What is wrong, if something is."""
        if self.problem:
            return self.problem
        return "\n".join(
            f"Deployment '{name}': {said}" for name, each in self.deployments.items() if (said := each.said)
        )

    @property
    def overview(self) -> ApplicationStatusOverview:
        """The status as users see it."""
        return ApplicationStatusOverview(
            self.status,
            self.message,
            self.deployed_at,
            {name: each.overview for name, each in self.deployments.items()},
        )

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted, and nothing is left."""
        return self.is_deleting and not self.deployments

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on this application holds."""
        async with self.changed:
            await self.changed.wait_for(condition)

    def _notify(self) -> None:
        with self._health.applications.timed():
            self._tell()
        self._note()

        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.ensure_future(notify())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    def _tell(self) -> None:
        record_application(self)
        for name, keeper in list(self.deployments.items()):
            if keeper.is_gone:
                del self.deployments[name]
        if self.is_gone:
            record_application(self)
