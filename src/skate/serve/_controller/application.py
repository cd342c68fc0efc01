"""One application as the controller keeps it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from skate.serve._build.spec import ApplicationSpec
from skate.serve._controller.deployment import DeploymentKeeper
from skate.serve._router.router import DeploymentNews
from skate.serve._schema.statuses import ApplicationStatus, ApplicationStatusOverview, DeploymentStatus
from skate.serve._watch.controller import tell_application

__all__ = ["ApplicationKeeper"]


class ApplicationKeeper:
    """Its deployments, and what their states together mean. On the controller's loop."""

    def __init__(self, spec: ApplicationSpec, post: Callable[[str, DeploymentNews], None]) -> None:
        self.spec = spec
        self.deployments: dict[str, DeploymentKeeper] = {}
        self.deployed_at = time.time()
        self.is_deleting = False
        self.is_building = False
        self.problem = ""  # with what it should be; what it was before goes on
        self.changed = asyncio.Condition()
        self._post = post
        self._notices: set[asyncio.Task[None]] = set()

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
                continue
            key = each.id.key
            keeper = DeploymentKeeper(each, lambda news, key=key: self._post(key, news), self._notify)  # type: ignore[misc]
            self.deployments[name] = keeper
            keeper.step()

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
        tell_application(self)
        for name, keeper in list(self.deployments.items()):
            if keeper.is_gone:
                del self.deployments[name]
        if self.is_gone:
            tell_application(self)

        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.ensure_future(notify())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)
