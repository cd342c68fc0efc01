"""All that the controller knows: applications, the proxy, and what others are told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from skate.serve._autoscaling.application import externally_scaled
from skate.serve._build.spec import ApplicationSpec
from skate.serve._controller.application import ApplicationKeeper
from skate.serve._controller.board import Board
from skate.serve._controller.declared import Declarations
from skate.serve._controller.health import Health
from skate.serve._controller.ledger import open_ledger
from skate.serve._controller.memory import Memory, Recall
from skate.serve._controller.proxies import ProxyKeeper
from skate.serve._controller.records import Record
from skate.serve._controller.recovery import Found, end, look
from skate.serve._controller.scaling import Scaling
from skate.serve._process import reachable_host
from skate.serve._schema.statuses import ApplicationStatus, ServeStatus
from skate.serve._wire import Address, Link, Listener
from skate.serve._wire.frames import Update
from skate.serve._wire.updates import DeploymentUpdate, LoadReport, Route

__all__ = ["State"]

logger = logging.getLogger("skate.serve")

_ROUTES = "routes"
_CALLERS_RETURN_S = 2.0  # to a controller that has been restarted: before, it does not know their requests


class State:
    """What should run, what runs, and who is told. On the controller's loop."""

    def __init__(self, http_options: dict[str, Any] | None, grpc_options: dict[str, Any] | None) -> None:
        self.health = Health()
        self.proxy = ProxyKeeper(http_options, grpc_options, self._proxy_changed)
        self._apps: dict[str, ApplicationKeeper] = {}
        self._declarations = Declarations(self._keeper, self._deploy)
        self._declared: tuple[dict[str, Any], str | None] | None = None  # the file before, and its folder
        self._target_capacity: float | None = None
        self._scaling = Scaling(self.health)
        self._memory = Memory(open_ledger(), self._record)
        self._tasks: set[asyncio.Task[None]] = set()
        self._board = Board(self._heard, self._left)
        self._listener = Listener(self._board.opened, host=reachable_host())

    async def open(self) -> Address:
        """Go on where another controller was killed, listen for processes that want to be told, and return where."""
        found = await asyncio.get_running_loop().run_in_executor(None, look)
        remembered = await self._memory.open()
        with self.health.turn():
            self._adopt(*remembered, found)
        self._post_routes()
        return await self._listener.open()

    def _record(self, key_of: Callable[[Any], str]) -> Record:
        return Record(
            applications=[app.record(key_of) for app in self._apps.values()],
            proxy=self.proxy.record(),
            declared=None if self._declared is None else key_of(self._declared),
            target_capacity=self._target_capacity,
            capacity_is_growing=self._declarations.is_growing,
        )

    def _adopt(self, record: Record, recall: Recall, found: Found) -> None:
        # In one turn of the loop: half of it must not be written down as all there is.
        self._target_capacity = record.target_capacity
        for each in record.applications:
            app = ApplicationKeeper.adopted(
                each, recall, found.actors, self._post_deployment, self._memory.note, self.health
            )
            self._apps[app.spec.name] = app
        if record.proxy is not None:
            self.proxy.adopt(record.proxy)
        needed = [name for app in self._apps.values() for name in app.actors]
        if record.proxy is not None:
            needed.append(record.proxy.actor)
        for app in self._apps.values():
            app.step()
            if app.is_deleting:
                self._keep(self._forget_when_gone(app.spec.name, app))
            else:
                self._scaling.follow(app, _CALLERS_RETURN_S)
        if record.declared is not None:
            from skate.serve._schema.application import ServeDeploySchema

            self._declared = file, folder = recall(record.declared)
            self._declarations.is_growing = record.capacity_is_growing
            begun = [app for app in self._apps.values() if app.is_building]
            self._declarations.resume(ServeDeploySchema.model_validate(file), folder, begun)
        self._keep(end(found.without(needed)))

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine; the loop alone would not keep it alive."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _proxy_changed(self) -> None:
        self._memory.note()
        self._board.look_again()

    async def status(self) -> ServeStatus:
        """Return how everything stands."""
        return ServeStatus(
            proxies=self.proxy.statuses(),
            applications={name: app.overview for name, app in self._apps.items()},
            target_capacity=self._target_capacity,
        )

    async def details(self) -> dict[str, Any]:
        """Return how everything stands in full, as the fields of `ServeInstanceDetails`."""
        from skate.serve._controller.details import instance_details

        return instance_details(self._apps.values(), self.proxy, self._target_capacity).model_dump()

    async def configs(self) -> dict[str, dict[str, Any]]:
        """Return what files say about the applications that they declare."""
        apps = [app for app in self._apps.values() if app.spec.is_declarative and not app.is_deleting]
        return {app.spec.name: app.spec.config or {} for app in apps}

    async def ingress_of(self, app: str) -> str | None:
        """Return the name of an application's ingress deployment, or None if there is no such application."""
        keeper = self._apps.get(app)
        return None if keeper is None or keeper.is_deleting else keeper.spec.ingress or None

    async def deployments_of(self, app: str) -> list[str] | None:
        """Return the names of an application's deployments, or None if there is no such application."""
        keeper = self._apps.get(app)
        return None if keeper is None else list(keeper.deployments)

    async def deploy(self, specs: list[ApplicationSpec]) -> None:
        """Deploy applications, or change what is deployed under their names."""
        for spec in specs:
            self._check_route(spec)
        for spec in specs:
            self._declarations.forget(spec.name)
            self._deploy(spec)
        await self._memory.saved()

    async def declare(self, file: dict[str, Any], folder: str | None) -> None:
        """Have the applications of a file in place of those of the file before it."""
        from skate.serve._schema.application import ServeDeploySchema

        config = ServeDeploySchema.model_validate(file)
        self._target_capacity = config.target_capacity
        self._declared = file, folder
        wanted = {app.name for app in config.applications}
        gone = [name for name, app in self._apps.items() if app.spec.is_declarative and name not in wanted]
        await self.delete(gone, wait=False)
        self._declarations.apply(config, folder)
        await self._memory.saved()

    def _keeper(self, spec: ApplicationSpec) -> ApplicationKeeper:
        app = self._apps.get(spec.name)
        if app is None:
            app = self._apps[spec.name] = ApplicationKeeper(
                spec, self._post_deployment, self._memory.note, self.health
            )
        return app

    def _deploy(self, spec: ApplicationSpec) -> None:
        self._check_route(spec)
        app = self._keeper(spec)
        app.deploy(spec)
        self._scaling.follow(app)
        self._post_routes()

    def _check_route(self, spec: ApplicationSpec) -> None:
        for name, app in self._apps.items():
            taken = app.spec.route_prefix
            if name == spec.name or (spec.is_declarative and app.spec.is_declarative):
                continue  # those of one file have been compared, and may be about to change places
            if taken is not None and taken == spec.route_prefix and not app.is_deleting:
                raise ValueError(
                    f'Prefix {taken} is being used by application "{name}". Failed to deploy application '
                    f'"{spec.name}": give one of them another route_prefix.'
                )

    async def running(self, name: str) -> str | None:
        """Wait until an application runs; returns what went wrong, or None."""
        app = self._apps.get(name)
        if app is None:
            return "it was deleted"
        failed = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.DELETING)
        await app.until(lambda: app.status is ApplicationStatus.RUNNING or app.status in failed)
        if app.status is not ApplicationStatus.RUNNING:
            return app.message or "it was deleted"
        await self._routes_seen()
        return None

    async def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Give a deployment a number of replicas, because somebody outside wants it."""
        keeper = self._apps.get(app)
        found = None if keeper is None else keeper.deployments.get(deployment)
        if keeper is None or found is None:
            raise ValueError(f"There is no deployment {deployment!r} in an application {app!r}.")
        found.scale(
            externally_scaled(keeper.spec.external_scaler_enabled, app, deployment, replicas), by_load=False
        )
        await self._memory.saved()

    async def is_externally_scaled(self, app: str) -> bool:
        """Tell whether an application allows its deployments to be scaled from outside."""
        keeper = self._apps.get(app)
        return keeper is not None and keeper.spec.external_scaler_enabled

    async def delete(self, names: list[str], wait: bool) -> None:
        """Stop applications."""
        apps = [self._apps[name] for name in names if name in self._apps]
        for app in apps:
            self._declarations.forget(app.spec.name)
            app.delete()
            self._scaling.drop(app.spec.name)
        self._post_routes()
        await self._memory.saved()
        for app in apps:
            task = self._keep(self._forget_when_gone(app.spec.name, app))
            if wait:
                await task
        if wait:
            await self._routes_seen()

    async def _routes_seen(self) -> None:
        await self._board.until_seen(_ROUTES, lambda: int(self.proxy.is_running))

    async def _forget_when_gone(self, name: str, app: ApplicationKeeper) -> None:
        await app.until(lambda: app.is_gone)
        if self._apps.get(name) is app:
            del self._apps[name]
            self._memory.note()

    async def shutdown(self) -> None:
        """Stop everything."""
        await self.delete(list(self._apps), wait=True)
        self._scaling.close()
        await self.proxy.stop()
        await self._memory.close()
        await self._listener.close()

    def _post_deployment(self, key: str, news: DeploymentUpdate) -> None:
        self._board.post(f"deployment:{key}", msgspec.msgpack.encode(news))
        self._scaling.stepped(key)

    def _post_routes(self) -> None:
        # Where applications of a file change places, one that is not what it should be yet gives way.
        routes = {
            app.spec.route_prefix: Route(app.spec.route_prefix, app.spec.name, app.spec.ingress)
            for app in sorted(self._apps.values(), key=lambda app: not (app.is_building or app.problem))
            if app.spec.route_prefix is not None and app.spec.ingress and not app.is_deleting
        }
        self._board.post(_ROUTES, msgspec.msgpack.encode(list(routes.values())))

    def _heard(self, link: Link, news: Update) -> None:
        if news.key == "load":
            self._scaling.heard(link.name, msgspec.msgpack.decode(news.value, type=LoadReport))

    def _left(self, link: Link) -> None:
        self._scaling.left(link.name)
