"""Applications from a configuration file. Each is built in a process of its own and then deployed.

An application that fails to build reports the error in its status and does not affect the others.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import skate
from skate._api.starting import packed_environment
from skate.exceptions import RuntimeEnvSetupError
from skate.serve._autoscaling.replica_counts import is_ramping_up
from skate.serve._build.overrides import apply_overrides, compute_digest, merge_environments
from skate.serve._build.remote_build import BuildFailure, BuildResult, build_from_import_path
from skate.serve._build.spec import ApplicationSpec
from skate.serve._controller.applications import ApplicationReconciler
from skate.serve._runtime.engine import actor_runtime_env

if TYPE_CHECKING:
    from skate.serve._schema.config_file import ServeApplicationSchema, ServeDeploySchema

__all__ = ["DeclarativeApplications"]


@dataclass(frozen=True)
class _CachedBuild:
    """The latest build of an application, and the digest of the inputs it was built from."""

    code: str
    built: BuildResult


class DeclarativeApplications:
    """Builds and deploys the applications of configuration files. Runs on the controller's loop.

    Args:
        reconciler: Returns the reconciler of an application, creating it if necessary.
        deploy: Deploys a built application; may raise.
    """

    def __init__(
        self,
        reconciler: Callable[[ApplicationSpec], ApplicationReconciler],
        deploy: Callable[[ApplicationSpec], None],
    ) -> None:
        self._get_reconciler = reconciler
        self._deploy = deploy
        self._builds: dict[str, _CachedBuild] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._config: ServeDeploySchema | None = None
        self.is_ramping_up = False  # whether `target_capacity` grows from file to file

    def apply(self, config: ServeDeploySchema, folder: str | None) -> None:
        """Build and deploy all applications of a file. The caller deletes those of the previous file.

        Args:
            config: The parsed file.
            folder: A folder to import modules from that are not installed.
        """
        previous, self._config = self._config, config
        target_capacity = config.target_capacity
        if previous is not None and _names(previous) == _names(config):
            self.is_ramping_up = is_ramping_up(previous.target_capacity, target_capacity, self.is_ramping_up)
        else:
            self.is_ramping_up = target_capacity is not None
        for app in config.applications:
            self._cancel_task(app.name)
            first = ApplicationSpec(app.name, app.route_prefix, (), "", is_declarative=True)
            reconciler = self._get_reconciler(first)
            reconciler.begin_building(
                replace(reconciler.spec, is_declarative=True, config=app.model_dump(exclude_unset=True))
            )
            self._tasks[app.name] = asyncio.ensure_future(
                self._build_and_deploy(reconciler, app, config, folder)
            )

    def resume(
        self, config: ServeDeploySchema, folder: str | None, apps: Collection[ApplicationReconciler]
    ) -> None:
        """Continue with the file of a previous controller, and build the applications that it had not finished."""
        self._config = config
        building = {app.spec.name: app for app in apps}
        for app in config.applications:
            if app.name in building:
                self._tasks[app.name] = asyncio.ensure_future(
                    self._build_and_deploy(building[app.name], app, config, folder)
                )

    def cancel(self, name: str) -> None:
        """Cancel the build of an application that was deleted or no longer comes from a file."""
        self._cancel_task(name)
        self._builds.pop(name, None)

    def _cancel_task(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def _build_and_deploy(
        self,
        reconciler: ApplicationReconciler,
        app: ServeApplicationSchema,
        config: ServeDeploySchema,
        folder: str | None,
    ) -> None:
        try:
            loop = asyncio.get_running_loop()
            environment = await loop.run_in_executor(None, packed_environment, app.runtime_env)
            # A packed working directory must contain the program; otherwise the folder itself must be importable.
            is_reachable = folder is None or folder in sys.path or "working_dir" in environment
            import_folder = None if is_reachable else folder
            code = compute_digest(app.import_path, app.args, environment)
            built = await self._build(app, code, merge_environments(environment, {}, import_folder))
            spec = apply_overrides(
                built,
                app,
                code,
                environment,
                import_folder=import_folder,
                logging_config=config.logging_config,
                target_capacity=config.target_capacity,
                is_ramping_up=self.is_ramping_up,
            )
            self._deploy(spec)
        except asyncio.CancelledError:
            raise
        except RuntimeEnvSetupError as error:
            reconciler.fail(f"Failed to set up runtime environment: {error}")
        except Exception as error:
            reconciler.fail(f"Deploying application '{app.name}' failed: {_error_text(error)}")

    async def _build(
        self, app: ServeApplicationSchema, code: str, environment: dict[str, Any]
    ) -> BuildResult:
        loop = asyncio.get_running_loop()
        cached = self._builds.get(app.name)
        if (
            cached is not None
            and cached.code == code
            and await loop.run_in_executor(None, cached.built.is_current)
        ):
            return cached.built
        # One call per process, so that the next build imports everything anew.
        once = skate.remote(num_cpus=0, max_calls=1)(build_from_import_path)
        task = once.options(name=f"ServeBuild:{app.name}", runtime_env=actor_runtime_env(environment))
        reference = await loop.run_in_executor(
            None, task.remote, app.import_path, app.args, app.name, app.route_prefix
        )
        try:
            built: BuildResult | BuildFailure = await reference
        except asyncio.CancelledError:
            loop.run_in_executor(None, lambda: skate.cancel(reference, force=True))
            raise
        if isinstance(built, BuildFailure):
            raise RuntimeError(f"\n{built.traceback}")
        self._builds[app.name] = _CachedBuild(code, built)
        return built


def _names(config: ServeDeploySchema) -> set[str]:
    return {app.name for app in config.applications}


def _error_text(error: Exception) -> str:
    return str(error) or repr(error)
