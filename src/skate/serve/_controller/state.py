"""The controller's state: applications, the proxy, and the updates that the controller publishes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from skate.serve._autoscaling.application import validate_external_target
from skate.serve._build.spec import ApplicationSpec
from skate.serve._controller.applications import ApplicationReconciler
from skate.serve._controller.declarative import DeclarativeApplications
from skate.serve._controller.health import ControllerHealth
from skate.serve._controller.persistence import LoadObject, StateStore, open_storage
from skate.serve._controller.proxies import ProxySupervisor
from skate.serve._controller.pubsub import Publisher
from skate.serve._controller.records import ControllerRecord
from skate.serve._controller.recovery import ExistingActors, find_existing, remove_orphans
from skate.serve._controller.scaling import AutoscalingManager
from skate.serve._runtime.engine import reachable_host
from skate.serve._schema.statuses import ApplicationStatus, ServeStatus
from skate.serve._wire import Address, Link, Listener
from skate.serve._wire.frames import Update
from skate.serve._wire.updates import DeploymentUpdate, LoadReport, Route

__all__ = ["ControllerState"]

logger = logging.getLogger("skate.serve")

_ROUTES_TOPIC = "routes"
_RECONNECT_GRACE_S = 2.0  # for callers to reconnect to a restarted controller and report their requests


class ControllerState:
    """The desired and the actual state of Serve. Runs on the controller's loop."""

    def __init__(self, http_options: dict[str, Any] | None, grpc_options: dict[str, Any] | None) -> None:
        self.health = ControllerHealth()
        self.proxy = ProxySupervisor(http_options, grpc_options, self._handle_proxy_change)
        self._apps: dict[str, ApplicationReconciler] = {}
        self._declarative = DeclarativeApplications(self._reconciler, self._deploy)
        # The last configuration file and its folder.
        self._declared: tuple[dict[str, Any], str | None] | None = None
        self._target_capacity: float | None = None
        self._scaling = AutoscalingManager(self.health)
        self._store = StateStore(open_storage(), self._record)
        self._tasks: set[asyncio.Task[None]] = set()
        self._publisher = Publisher(self._handle_message, self._handle_disconnect)
        self._listener = Listener(self._publisher.handle_connection, host=reachable_host())

    async def open(self) -> Address:
        """Recover the state of a previous controller, listen for other processes, and return the address."""
        existing = await asyncio.get_running_loop().run_in_executor(None, find_existing)
        recorded = await self._store.open()
        with self.health.iteration():
            self._recover(*recorded, existing)
        self._publish_routes()
        return await self._listener.open()

    def _record(self, key_of: Callable[[Any], str]) -> ControllerRecord:
        return ControllerRecord(
            applications=[app.record(key_of) for app in self._apps.values()],
            proxy=self.proxy.record(),
            declared=None if self._declared is None else key_of(self._declared),
            target_capacity=self._target_capacity,
            is_ramping_up=self._declarative.is_ramping_up,
        )

    def _recover(self, record: ControllerRecord, load_object: LoadObject, existing: ExistingActors) -> None:
        # Without awaiting, because a partly recovered state must not be stored.
        self._target_capacity = record.target_capacity
        for each in record.applications:
            app = ApplicationReconciler.from_record(
                each,
                load_object,
                existing.actors,
                self._publish_deployment,
                self._store.mark_changed,
                self.health,
            )
            self._apps[app.spec.name] = app
        if record.proxy is not None:
            self.proxy.recover(record.proxy)
        needed = [name for app in self._apps.values() for name in app.actors]
        if record.proxy is not None:
            needed.append(record.proxy.actor)
        for app in self._apps.values():
            app.step()
            if app.is_deleting:
                self._spawn(self._remove_when_deleted(app.spec.name, app))
            else:
                self._scaling.manage(app, _RECONNECT_GRACE_S)
        if record.declared is not None:
            from skate.serve._schema.config_file import ServeDeploySchema

            self._declared = file, folder = load_object(record.declared)
            self._declarative.is_ramping_up = record.is_ramping_up
            building = [app for app in self._apps.values() if app.is_building]
            self._declarative.resume(ServeDeploySchema.model_validate(file), folder, building)
        self._spawn(remove_orphans(existing.without(needed)))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task, and keep a reference to it."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _handle_proxy_change(self) -> None:
        self._store.mark_changed()
        self._publisher.recheck_acknowledgements()

    async def status(self) -> ServeStatus:
        """Return the status of proxies and applications."""
        return ServeStatus(
            proxies=self.proxy.statuses(),
            applications={name: app.overview for name, app in self._apps.items()},
            target_capacity=self._target_capacity,
        )

    async def details(self) -> dict[str, Any]:
        """Return the full state as the fields of `ServeInstanceDetails`."""
        from skate.serve._controller.details import instance_details

        return instance_details(self._apps.values(), self.proxy, self._target_capacity).model_dump()

    async def configs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations of the applications that a file declares, by application name."""
        apps = [app for app in self._apps.values() if app.spec.is_declarative and not app.is_deleting]
        return {app.spec.name: app.spec.config or {} for app in apps}

    async def ingress_of(self, app: str) -> str | None:
        """Return the name of an application's ingress deployment, or None if the application does not exist."""
        reconciler = self._apps.get(app)
        return None if reconciler is None or reconciler.is_deleting else reconciler.spec.ingress or None

    async def deployments_of(self, app: str) -> list[str] | None:
        """Return the names of an application's deployments, or None if the application does not exist."""
        reconciler = self._apps.get(app)
        return None if reconciler is None else list(reconciler.deployments)

    async def deploy(self, specs: list[ApplicationSpec]) -> None:
        """Deploy applications, replacing those with the same names."""
        for spec in specs:
            self._check_route(spec)
        for spec in specs:
            self._declarative.cancel(spec.name)
            self._deploy(spec)
        await self._store.flush()

    async def declare(self, file: dict[str, Any], folder: str | None) -> None:
        """Deploy the applications of a configuration file, replacing those of the previous file."""
        from skate.serve._schema.config_file import ServeDeploySchema

        config = ServeDeploySchema.model_validate(file)
        self._target_capacity = config.target_capacity
        self._declared = file, folder
        wanted = {app.name for app in config.applications}
        removed = [name for name, app in self._apps.items() if app.spec.is_declarative and name not in wanted]
        await self.delete(removed, wait=False)
        self._declarative.apply(config, folder)
        await self._store.flush()

    def _reconciler(self, spec: ApplicationSpec) -> ApplicationReconciler:
        app = self._apps.get(spec.name)
        if app is None:
            app = self._apps[spec.name] = ApplicationReconciler(
                spec, self._publish_deployment, self._store.mark_changed, self.health
            )
        return app

    def _deploy(self, spec: ApplicationSpec) -> None:
        self._check_route(spec)
        app = self._reconciler(spec)
        app.deploy(spec)
        self._scaling.manage(app)
        self._publish_routes()

    def _check_route(self, spec: ApplicationSpec) -> None:
        for name, app in self._apps.items():
            taken = app.spec.route_prefix
            if name == spec.name or (spec.is_declarative and app.spec.is_declarative):
                continue  # validation has compared the routes of one file, which may be about to swap
            if taken is not None and taken == spec.route_prefix and not app.is_deleting:
                raise ValueError(
                    f'Application "{spec.name}" cannot have the route_prefix {taken}, which belongs to application '
                    f'"{name}": '
                    "give one of them another."
                )

    async def wait_until_running(self, name: str) -> str | None:
        """Wait until an application runs; return an error message, or None on success."""
        app = self._apps.get(name)
        if app is None:
            return "it was deleted"
        failed = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.DELETING)
        await app.wait_until(lambda: app.status is ApplicationStatus.RUNNING or app.status in failed)
        if app.status is not ApplicationStatus.RUNNING:
            return app.message or "it was deleted"
        await self._wait_for_routes()
        return None

    async def scale(self, app: str, deployment: str, replicas: int) -> None:
        """Set the number of replicas of a deployment on behalf of an external scaler."""
        reconciler = self._apps.get(app)
        existing = None if reconciler is None else reconciler.deployments.get(deployment)
        if reconciler is None or existing is None:
            raise ValueError(f"Application {app!r} has no deployment {deployment!r}.")
        existing.scale(
            validate_external_target(reconciler.spec.external_scaler_enabled, app, deployment, replicas),
            by_load=False,
        )
        await self._store.flush()

    async def is_externally_scaled(self, app: str) -> bool:
        """Return whether an application allows external scaling of its deployments."""
        reconciler = self._apps.get(app)
        return reconciler is not None and reconciler.spec.external_scaler_enabled

    async def delete(self, names: list[str], wait: bool) -> None:
        """Delete applications."""
        apps = [self._apps[name] for name in names if name in self._apps]
        for app in apps:
            self._declarative.cancel(app.spec.name)
            app.delete()
            self._scaling.stop(app.spec.name)
        self._publish_routes()
        await self._store.flush()
        for app in apps:
            task = self._spawn(self._remove_when_deleted(app.spec.name, app))
            if wait:
                await task
        if wait:
            await self._wait_for_routes()

    async def _wait_for_routes(self) -> None:
        await self._publisher.wait_until_acknowledged(_ROUTES_TOPIC, lambda: int(self.proxy.is_running))

    async def _remove_when_deleted(self, name: str, app: ApplicationReconciler) -> None:
        await app.wait_until(lambda: app.is_deleted)
        if self._apps.get(name) is app:
            del self._apps[name]
            self._store.mark_changed()

    async def shutdown(self) -> None:
        """Stop everything."""
        await self.delete(list(self._apps), wait=True)
        self._scaling.close()
        await self.proxy.stop()
        await self._store.close()
        await self._listener.close()

    def _publish_deployment(self, key: str, update: DeploymentUpdate) -> None:
        self._publisher.publish(f"deployment:{key}", msgspec.msgpack.encode(update))
        self._scaling.handle_replica_change(key)

    def _publish_routes(self) -> None:
        # If applications of a file swap routes, a running application takes precedence over one that is being built.
        routes = {
            app.spec.route_prefix: Route(app.spec.route_prefix, app.spec.name, app.spec.ingress)
            for app in sorted(self._apps.values(), key=lambda app: not (app.is_building or app.build_error))
            if app.spec.route_prefix is not None and app.spec.ingress and not app.is_deleting
        }
        self._publisher.publish(_ROUTES_TOPIC, msgspec.msgpack.encode(list(routes.values())))

    def _handle_message(self, link: Link, update: Update) -> None:
        if update.key == "load":
            self._scaling.handle_report(link.name, msgspec.msgpack.decode(update.value, type=LoadReport))

    def _handle_disconnect(self, link: Link) -> None:
        self._scaling.handle_disconnect(link.name)
