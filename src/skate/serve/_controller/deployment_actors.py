"""Actors that all replicas of a deployment share: there before its replicas, and gone after them."""

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
from skate.serve._build.overrides import merged_environment
from skate.serve._build.spec import DeploymentSpec
from skate.serve._runtime.engine import ask
from skate.serve._runtime.ids import NAMESPACE, DeploymentID
from skate.serve.context import (
    DeploymentActorContext,
    _deployment_actor_name,
    _set_deployment_actor,
)

if TYPE_CHECKING:
    from skate.serve.config import DeploymentActorConfig

__all__ = ["SharedActor", "SharedActors", "create"]

logger = logging.getLogger("skate.serve")


class SharedActors:
    """The shared actors of one deployment: a set for each version that has replicas. On the controller's loop.

    Args:
        id: The deployment.
        changed: Called whenever one of them has started, or is gone.
        failed: Called with an actor that did not start, or ended by itself, and the error.
    """

    def __init__(
        self,
        id: DeploymentID,
        changed: Callable[[], None],
        failed: Callable[[SharedActor, BaseException], None],
    ) -> None:
        self._id = id
        self._changed = changed
        self._failed = failed
        self._actors: dict[tuple[str, str], SharedActor] = {}  # by version and name
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def are_gone(self) -> bool:
        """Whether none is left."""
        return not self._actors and not self._ending

    def bring(self, spec: DeploymentSpec) -> bool:
        """See that the actors of a version run; returns whether all of them do."""
        wanted = spec.options.deployment_actors or ()
        for config in wanted:
            key = spec.version, config.name
            if key not in self._actors:
                actor = self._actors[key] = SharedActor(spec, config, self._changed, self._lost)
                actor.start()
        return self.are_running(spec)

    def adopt(self, spec: DeploymentSpec, actors: Collection[str]) -> None:
        """Go on with the actors of a version that another controller has made.

        Args:
            spec: The version.
            actors: The names of the actors that there are.
        """
        for config in spec.options.deployment_actors or ():
            key = spec.version, config.name
            if (
                key not in self._actors
                and _deployment_actor_name(spec.id, config.name, spec.version) in actors
            ):
                actor = self._actors[key] = SharedActor(spec, config, self._changed, self._lost)
                actor.start()

    @property
    def names(self) -> list[str]:
        """The names of their actors."""
        return [_deployment_actor_name(self._id, name, version) for version, name in self._actors]

    def are_running(self, spec: DeploymentSpec) -> bool:
        """Tell whether all actors of a version run."""
        actors = [
            self._actors.get((spec.version, each.name)) for each in spec.options.deployment_actors or ()
        ]
        return all(actor is not None and actor.is_running for actor in actors)

    def keep(self, versions: Collection[str]) -> None:
        """End those of all other versions."""
        for key, actor in list(self._actors.items()):
            if key[0] not in versions:
                del self._actors[key]
                self._end(actor)

    def kill(self) -> None:
        """End all of them at once."""
        for actor in self._actors.values():
            actor.kill()

    def _lost(self, actor: SharedActor, error: BaseException) -> None:
        key = actor.spec.version, actor.name
        if self._actors.get(key) is actor:
            del self._actors[key]
            self._failed(actor, error)

    def _end(self, actor: SharedActor) -> None:
        task = asyncio.ensure_future(actor.end())
        self._ending.add(task)

        def over(task: asyncio.Task[None]) -> None:
            self._ending.discard(task)
            self._changed()

        task.add_done_callback(over)


class SharedActor:
    """Starts one actor and follows its life.

    One whose process ends is started again by the engine, under the same name and for the same handles. The controller
    only sees to one that is gone for good, because somebody killed it or it failed too often.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        config: DeploymentActorConfig,
        changed: Callable[[], None],
        lost: Callable[[SharedActor, BaseException], None],
    ) -> None:
        self.spec = spec
        self.is_running = False
        self.was_running = False
        self._config = config
        self._changed = changed
        self._lost = lost
        self._actor: Any = None
        self._life: asyncio.Task[None] | None = None
        self._creation: asyncio.Future[ObjectRef[None]] | None = None  # of the task that creates it

    @property
    def name(self) -> str:
        """What replicas ask for."""
        return self._config.name

    def start(self) -> None:
        """Start it."""
        self._life = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        try:
            await self._make()
            await ask(self._actor.__ray_ready__)
            self.is_running = self.was_running = True
            self._changed()
            await self._watch()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.is_running = False
            await self._clean_up()
            self._lost(self, error)

    async def _make(self) -> None:
        name = _deployment_actor_name(self.spec.id, self.name, self.spec.version)
        loop = asyncio.get_running_loop()
        try:
            self._actor = await loop.run_in_executor(None, skate.get_actor, name, NAMESPACE)
        except ValueError:  # no other controller has made it
            await self._create()
            self._actor = await loop.run_in_executor(None, skate.get_actor, name, NAMESPACE)

    async def _create(self) -> None:
        options = self.spec.options
        outer = options.ray_actor_options.get("runtime_env") or {}
        own = self._config.actor_options.get("runtime_env") or {}
        environment = merged_environment(outer, own)
        settings = {
            "max_restarts": options.max_constructor_retry_count,
            **self._config.actor_options,
            "runtime_env": environment,
        }
        context = DeploymentActorContext(self.spec.id, self.name, self.spec.version)
        # Elsewhere: its class is the user's code, which the controller does not run.
        task = skate.remote(num_cpus=0)(create).options(
            name=f"ServeDeploymentActor:{self.spec.id.name}:{self.name}", runtime_env=environment or None
        )
        loop = asyncio.get_running_loop()
        self._creation = loop.run_in_executor(None, task.remote, self._config, context, settings)
        await (await asyncio.shield(self._creation))
        self._creation = None

    async def _watch(self) -> None:
        """Return never; raises once the actor is gone for good."""
        while True:
            await asyncio.sleep(self.spec.options.health_check_period_s)
            try:
                await ask(
                    self._actor.__ray_ready__
                )  # which waits for its turn, however long calls before it take
            except ActorUnavailableError:
                logger.warning("Deployment actor '%s' of %s is being restarted.", self.name, self.spec.id)

    async def end(self) -> None:
        """End it."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        await self._stop_creation()
        await self._clean_up()

    async def _stop_creation(self) -> None:
        """Cancel the task that creates the actor, and wait until it can no longer create one."""
        if self._creation is None:
            return
        await asyncio.wait([self._creation])
        if self._creation.exception() is None:
            reference = self._creation.result()
            skate.cancel(reference, force=True)  # it runs user code, which may not return
            await asyncio.gather(reference.as_future(), return_exceptions=True)

    def kill(self) -> None:
        """End it at once."""
        if self._life is not None:
            self._life.cancel()
        if self._actor is not None:
            skate.kill(self._actor)

    async def _clean_up(self) -> None:
        name = _deployment_actor_name(self.spec.id, self.name, self.spec.version)
        await asyncio.get_running_loop().run_in_executor(None, _kill_named, name)


def _kill_named(name: str) -> None:
    # By its name: the handle is looked up only after the creating task has returned.
    try:
        actor = skate.get_actor(name, NAMESPACE)
    except ValueError:
        return
    skate.kill(actor)


def create(config: DeploymentActorConfig, context: DeploymentActorContext, settings: dict[str, Any]) -> None:
    """Create the actor, which outlives this call. Whether its constructor succeeds is not waited for.

    Args:
        config: What the user wrote.
        context: What the actor will know of itself.
        settings: Options of the actor, in place of those that its class has.
    """
    given = config.get_actor_class()
    kind: ActorClass[Any] = ActorClass(_aware(given.__ray_metadata__.modified_class, context), given._options)
    kind.options(
        **{
            **settings,
            "name": _deployment_actor_name(context.deployment_id, context.actor_name, context.code_version),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
        }
    ).remote(*config.init_args, **config.init_kwargs)


def _aware(kind: type, context: DeploymentActorContext) -> type:
    """Return a class whose instances find their context, in their constructor already and after each restart."""
    initialize: Any = getattr(kind, "__init__")  # noqa: B009 - of the class, as it says

    @functools.wraps(initialize)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        _set_deployment_actor(context)
        initialize(self, *args, **kwargs)

    members = {"__init__": begin, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), {**members, "__qualname__": kind.__qualname__})
