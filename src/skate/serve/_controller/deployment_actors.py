"""Deployment actors, which all replicas of a deployment share. They start before its replicas and stop after them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import skate
from skate import ObjectRef
from skate.actor import ActorClass
from skate.exceptions import ActorUnavailableError
from skate.serve._build.overrides import merge_environments
from skate.serve._build.spec import DeploymentSpec
from skate.serve._controller.recovery import kill_named
from skate.serve._runtime.engine import call_actor
from skate.serve._runtime.ids import NAMESPACE, DeploymentID
from skate.serve.context import (
    DeploymentActorContext,
    _deployment_actor_name,
    _set_deployment_actor,
)

if TYPE_CHECKING:
    from skate.serve.config import DeploymentActorConfig

__all__ = ["DeploymentActorSupervisor", "DeploymentActors", "create_deployment_actor"]

logger = logging.getLogger("skate.serve")


class DeploymentActors:
    """The deployment actors of one deployment: one set per version that has replicas. Runs on the controller's loop.

    Args:
        id: The deployment.
        changed: Called after an actor has started or stopped.
        failed: Called with an actor that failed to start or died, and the error.
    """

    def __init__(
        self,
        id: DeploymentID,
        changed: Callable[[], None],
        failed: Callable[[DeploymentActorSupervisor, BaseException], None],
    ) -> None:
        self._id = id
        self._changed = changed
        self._failed = failed
        self._actors: dict[tuple[str, str], DeploymentActorSupervisor] = {}  # by version and name
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def are_stopped(self) -> bool:
        """Whether all actors are gone."""
        return not self._actors and not self._stopping

    def ensure_running(self, spec: DeploymentSpec) -> bool:
        """Start the missing actors of a version; return whether all of its actors run."""
        wanted = spec.options.deployment_actors or ()
        for config in wanted:
            key = spec.version, config.name
            if key not in self._actors:
                actor = self._actors[key] = DeploymentActorSupervisor(
                    spec, config, self._changed, self._handle_lost
                )
                actor.start()
        return self.are_running(spec)

    def recover(self, spec: DeploymentSpec, actors: Collection[str]) -> None:
        """Take over the actors of a version that a previous controller created.

        Args:
            spec: The version.
            actors: The names of the existing actors.
        """
        for config in spec.options.deployment_actors or ():
            key = spec.version, config.name
            if (
                key not in self._actors
                and _deployment_actor_name(spec.id, config.name, spec.version) in actors
            ):
                actor = self._actors[key] = DeploymentActorSupervisor(
                    spec, config, self._changed, self._handle_lost
                )
                actor.start()

    @property
    def names(self) -> list[str]:
        """The names of the actors."""
        return [_deployment_actor_name(self._id, name, version) for version, name in self._actors]

    def are_running(self, spec: DeploymentSpec) -> bool:
        """Return whether all actors of a version run."""
        actors = [
            self._actors.get((spec.version, each.name)) for each in spec.options.deployment_actors or ()
        ]
        return all(actor is not None and actor.is_running for actor in actors)

    def stop_other_versions(self, versions: Collection[str]) -> None:
        """Stop the actors of all versions that are not listed."""
        for key, actor in list(self._actors.items()):
            if key[0] not in versions:
                del self._actors[key]
                self._stop(actor)

    def kill(self) -> None:
        """Kill all actors without waiting."""
        for actor in self._actors.values():
            actor.kill()

    def _handle_lost(self, actor: DeploymentActorSupervisor, error: BaseException) -> None:
        key = actor.spec.version, actor.name
        if self._actors.get(key) is actor:
            del self._actors[key]
            self._failed(actor, error)

    def _stop(self, actor: DeploymentActorSupervisor) -> None:
        task = asyncio.ensure_future(actor.stop())
        self._stopping.add(task)

        def over(task: asyncio.Task[None]) -> None:
            self._stopping.discard(task)
            self._changed()

        task.add_done_callback(over)


class DeploymentActorSupervisor:
    """Starts one deployment actor and supervises it.

    The engine restarts an actor whose process ends, under the same name and for the same handles. The supervisor only
    handles the permanent loss of an actor: it was killed, or it failed too often.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        config: DeploymentActorConfig,
        changed: Callable[[], None],
        on_lost: Callable[[DeploymentActorSupervisor, BaseException], None],
    ) -> None:
        self.spec = spec
        self.is_running = False
        self.was_running = False
        self._config = config
        self._changed = changed
        self._handle_lost = on_lost
        self._actor: Any = None
        self._supervision: asyncio.Task[None] | None = None
        # Resolves to the task that creates the actor.
        self._creation_task: asyncio.Future[ObjectRef[None]] | None = None

    @property
    def name(self) -> str:
        """The name that replicas look the actor up by."""
        return self._config.name

    def start(self) -> None:
        """Start the actor."""
        self._supervision = asyncio.ensure_future(self._supervise())

    async def _supervise(self) -> None:
        try:
            await self._get_or_create()
            await call_actor(self._actor.__ray_ready__)
            self.is_running = self.was_running = True
            self._changed()
            await self._watch()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.is_running = False
            await self._clean_up()
            self._handle_lost(self, error)

    async def _get_or_create(self) -> None:
        name = _deployment_actor_name(self.spec.id, self.name, self.spec.version)
        loop = asyncio.get_running_loop()
        try:
            self._actor = await loop.run_in_executor(None, skate.get_actor, name, NAMESPACE)
        except ValueError:  # no previous controller created it
            await self._create()
            self._actor = await loop.run_in_executor(None, skate.get_actor, name, NAMESPACE)

    async def _create(self) -> None:
        options = self.spec.options
        outer = options.ray_actor_options.get("runtime_env") or {}
        own = self._config.actor_options.get("runtime_env") or {}
        environment = merge_environments(outer, own)
        settings = {
            "max_restarts": options.max_constructor_retry_count,
            **self._config.actor_options,
            "runtime_env": environment,
        }
        context = DeploymentActorContext(self.spec.id, self.name, self.spec.version)
        # In a task, because unpickling the class runs user code, which must not happen in the controller.
        task = skate.remote(num_cpus=0)(create_deployment_actor).options(
            name=f"ServeDeploymentActor:{self.spec.id.name}:{self.name}", runtime_env=environment or None
        )
        loop = asyncio.get_running_loop()
        self._creation_task = loop.run_in_executor(None, task.remote, self._config, context, settings)
        await (await asyncio.shield(self._creation_task))
        self._creation_task = None

    async def _watch(self) -> None:
        """Wait for the permanent loss of the actor, and raise its error."""
        while True:
            await asyncio.sleep(self.spec.options.health_check_period_s)
            try:
                # The call queues behind the actor's other calls, however long they take.
                await call_actor(self._actor.__ray_ready__)
            except ActorUnavailableError:
                logger.warning("Deployment actor '%s' of %s is being restarted.", self.name, self.spec.id)

    async def stop(self) -> None:
        """Stop the actor."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
        await self._cancel_creation()
        await self._clean_up()

    async def _cancel_creation(self) -> None:
        """Cancel the task that creates the actor, and wait until it can no longer create one."""
        if self._creation_task is None:
            return
        await asyncio.wait([self._creation_task])
        if self._creation_task.exception() is None:
            reference = self._creation_task.result()
            skate.cancel(reference, force=True)  # user code may block forever
            await asyncio.gather(reference.as_future(), return_exceptions=True)

    def kill(self) -> None:
        """Kill the actor without waiting."""
        if self._supervision is not None:
            self._supervision.cancel()
        if self._actor is not None:
            skate.kill(self._actor)

    async def _clean_up(self) -> None:
        name = _deployment_actor_name(self.spec.id, self.name, self.spec.version)
        # By name, because there is no handle until the creating task returns.
        await asyncio.get_running_loop().run_in_executor(None, kill_named, name)


def create_deployment_actor(
    config: DeploymentActorConfig, context: DeploymentActorContext, settings: dict[str, Any]
) -> None:
    """Create the actor, which outlives this call. Does not wait for its constructor.

    Runs as a task, in a process that may import the user's code.

    Args:
        config: The user's configuration of the actor.
        context: The context that the actor's code can ask for.
        settings: Options of the actor, which override those of its class.
    """
    actor_class = config.get_actor_class()
    wrapped: ActorClass[Any] = ActorClass(
        _with_context(actor_class.__ray_metadata__.modified_class, context), actor_class._options
    )
    wrapped.options(
        **{
            **settings,
            "name": _deployment_actor_name(context.deployment_id, context.actor_name, context.code_version),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
        }
    ).remote(*config.init_args, **config.init_kwargs)


def _with_context(wrapped: type, context: DeploymentActorContext) -> type:
    """Return a subclass whose instances have their context in the constructor and after each restart."""
    initialize: Any = getattr(wrapped, "__init__")  # noqa: B009 - mypy rejects access to __init__

    @functools.wraps(initialize)
    def initialize_with_context(self: Any, *args: Any, **kwargs: Any) -> None:
        _set_deployment_actor(context)
        initialize(self, *args, **kwargs)

    members = {
        "__init__": initialize_with_context,
        "__module__": wrapped.__module__,
        "__doc__": wrapped.__doc__,
    }
    return type(wrapped)(wrapped.__name__, (wrapped,), {**members, "__qualname__": wrapped.__qualname__})
