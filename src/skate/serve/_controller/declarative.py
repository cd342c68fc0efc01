"""Applications that a configuration file declares: built each in a process of its own, then deployed.

What goes wrong with one of them is told in its status, and touches no other.
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
from skate.serve._autoscaling.replica_counts import is_growing
from skate.serve._build.overrides import digest_of, merged_environment, overridden
from skate.serve._build.remote_build import Built, NotBuilt, build_at
from skate.serve._build.spec import ApplicationSpec
from skate.serve._controller.applications import ApplicationKeeper
from skate.serve._runtime.engine import surroundings

if TYPE_CHECKING:
    from skate.serve._schema.config_file import ServeApplicationSchema, ServeDeploySchema

__all__ = ["Declarations"]


@dataclass(frozen=True)
class _Known:
    """What was built last under a name, and from what the file said then."""

    code: str
    built: Built


class Declarations:
    """Brings applications to what a file says. On the controller's loop.

    Args:
        keeper: Returns the keeper of an application, which is made if there is none.
        install: Deploys what has been built; may refuse it.
    """

    def __init__(
        self,
        keeper: Callable[[ApplicationSpec], ApplicationKeeper],
        install: Callable[[ApplicationSpec], None],
    ) -> None:
        self._keeper = keeper
        self._install = install
        self._known: dict[str, _Known] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._file: ServeDeploySchema | None = None  # the last one
        self.is_growing = False  # its capacity, from file to file

    def apply(self, file: ServeDeploySchema, folder: str | None) -> None:
        """Build and deploy all applications of a file; those of an earlier file are others' business.

        Args:
            file: What it says.
            folder: Where whoever deploys looks for modules.
        """
        before, self._file = self._file, file
        capacity = file.target_capacity
        if before is not None and _names(before) == _names(file):
            self.is_growing = is_growing(before.target_capacity, capacity, self.is_growing)
        else:
            self.is_growing = capacity is not None
        for app in file.applications:
            self._stop(app.name)
            first = ApplicationSpec(app.name, app.route_prefix, (), "", is_declarative=True)
            keeper = self._keeper(first)
            keeper.begin(replace(keeper.spec, is_declarative=True, config=app.model_dump(exclude_unset=True)))
            self._tasks[app.name] = asyncio.ensure_future(self._bring(keeper, app, file, folder))

    def resume(
        self, file: ServeDeploySchema, folder: str | None, apps: Collection[ApplicationKeeper]
    ) -> None:
        """Go on with a file that another controller was given, and with building the applications that it had begun."""
        self._file = file
        begun = {app.spec.name: app for app in apps}
        for app in file.applications:
            if app.name in begun:
                self._tasks[app.name] = asyncio.ensure_future(self._bring(begun[app.name], app, file, folder))

    def forget(self, name: str) -> None:
        """End what is under way for an application that has gone, or is not a file's any more."""
        self._stop(name)
        self._known.pop(name, None)

    def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def _bring(
        self,
        keeper: ApplicationKeeper,
        app: ServeApplicationSchema,
        file: ServeDeploySchema,
        folder: str | None,
    ) -> None:
        try:
            loop = asyncio.get_running_loop()
            environment = await loop.run_in_executor(None, packed_environment, app.runtime_env)
            # Files that were packed have to hold the program; all others are found where they lie.
            is_reachable = folder is None or folder in sys.path or "working_dir" in environment
            import_folder = None if is_reachable else folder
            code = digest_of(app.import_path, app.args, environment)
            built = await self._built(app, code, merged_environment(environment, {}, import_folder))
            spec = overridden(
                built,
                app,
                code,
                environment,
                import_folder=import_folder,
                logging_config=file.logging_config,
                capacity=file.target_capacity,
                capacity_is_growing=self.is_growing,
            )
            self._install(spec)
        except asyncio.CancelledError:
            raise
        except RuntimeEnvSetupError as error:
            keeper.fail(f"Failed to set up runtime environment: {error}")
        except Exception as error:
            keeper.fail(f"Deploying application '{app.name}' failed: {_told(error)}")

    async def _built(self, app: ServeApplicationSchema, code: str, environment: dict[str, Any]) -> Built:
        loop = asyncio.get_running_loop()
        known = self._known.get(app.name)
        if (
            known is not None
            and known.code == code
            and await loop.run_in_executor(None, known.built.is_current)
        ):
            return known.built
        # One call for each process: the next one should import everything anew.
        once = skate.remote(num_cpus=0, max_calls=1)(build_at)
        task = once.options(name=f"ServeBuild:{app.name}", runtime_env=surroundings(environment))
        reference = await loop.run_in_executor(
            None, task.remote, app.import_path, app.args, app.name, app.route_prefix
        )
        try:
            built: Built | NotBuilt = await reference
        except asyncio.CancelledError:
            loop.run_in_executor(None, lambda: skate.cancel(reference, force=True))
            raise
        if isinstance(built, NotBuilt):
            raise RuntimeError(f"\n{built.traceback}")
        self._known[app.name] = _Known(code, built)
        return built


def _names(file: ServeDeploySchema) -> set[str]:
    return {app.name for app in file.applications}


def _told(error: Exception) -> str:
    return str(error) or repr(error)
