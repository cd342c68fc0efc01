"""Groups of identical actors whose methods are called together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import skate
from skate.util.annotations import Deprecated

__all__ = ["ActorGroup", "ActorGroupMethod", "ActorWrapper"]


@dataclass
class ActorWrapper:
    """An actor of a group, with the result of its `get_actor_metadata`, or None if it has no such method."""

    actor: Any
    metadata: Any


class ActorGroupMethod:
    """A method of all actors of a group."""

    def __init__(self, actor_group: ActorGroup, method_name: str) -> None:
        self._group = actor_group
        self._name = method_name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: a method is called with `.remote()`."""
        raise TypeError(
            f"Methods of an ActorGroup cannot be called directly: use {self._name}.remote() "
            f"instead of {self._name}()."
        )

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the method of each actor; return one reference per actor."""
        return [getattr(each.actor, self._name).remote(*args, **kwargs) for each in self._group.actors]


@Deprecated(
    message="For stateless tasks, use ray.util.multiprocessing. For actors, such as those of batch prediction, use "
    "Dataset.map_batches of ray.data.",
    warning=True,
)
class ActorGroup:
    """Actors of one class that are started, called and stopped together.

    >>> import skate
    >>> from skate.util.actor_group import ActorGroup
    >>> class Adder:
    ...     def add(self, x, y):
    ...         return x + y
    >>> group = ActorGroup(Adder, num_actors=2)
    >>> skate.get(group.add.remote(1, 2))
    [3, 3]
    >>> group.shutdown()

    Args:
        actor_cls: The class.
        num_actors: Number of actors to start.
        num_cpus_per_actor: CPUs per actor.
        num_gpus_per_actor: GPUs per actor.
        resources_per_actor: Further resources per actor.
        init_args: Arguments of the constructor.
        init_kwargs: Keyword arguments of the constructor.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        actor_cls: type,
        num_actors: int = 1,
        num_cpus_per_actor: float = 1,
        num_gpus_per_actor: float = 0,
        resources_per_actor: dict[str, float] | None = None,
        init_args: tuple[Any, ...] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if num_actors < 1:
            raise ValueError(f"num_actors must be 1 or more, got {num_actors}.")
        if num_cpus_per_actor < 0 or num_gpus_per_actor < 0:
            raise ValueError(
                "num_cpus_per_actor and num_gpus_per_actor must not be negative, "
                f"got {num_cpus_per_actor} and {num_gpus_per_actor}."
            )
        self.actors: list[ActorWrapper] = []
        self.num_actors = num_actors
        self._class = skate.remote(
            num_cpus=num_cpus_per_actor, num_gpus=num_gpus_per_actor, resources=resources_per_actor
        )(actor_cls)
        self._args = init_args or ()
        self._kwargs = init_kwargs or {}
        self.start()

    def __getattr__(self, name: str) -> ActorGroupMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        if not self.actors:
            raise RuntimeError("This ActorGroup has been shut down: call start() first.")
        return ActorGroupMethod(self, name)

    def __len__(self) -> int:
        return len(self.actors)

    def __getitem__(self, index: int) -> ActorWrapper:
        return self.actors[index]

    @property
    def actor_metadata(self) -> list[Any]:
        """The results of `get_actor_metadata` of all actors."""
        return [each.metadata for each in self.actors]

    def start(self) -> None:
        """Start the actors after `shutdown`.

        Raises:
            RuntimeError: If the actors are running.
        """
        if self.actors:
            raise RuntimeError("The actors of this ActorGroup are already running: call shutdown() first.")
        self.add_actors(self.num_actors)

    def add_actors(self, num_actors: int) -> None:
        """Start more actors."""
        actors = [self._class.remote(*self._args, **self._kwargs) for _ in range(num_actors)]
        metadata: list[Any] = [None] * len(actors)
        if actors and hasattr(actors[0], "get_actor_metadata"):
            metadata = skate.get([actor.get_actor_metadata.remote() for actor in actors])
        self.actors += [ActorWrapper(*each) for each in zip(actors, metadata, strict=True)]

    def remove_actors(self, actor_indexes: list[int]) -> None:
        """Release actors; they end when no other handle exists."""
        gone = set(actor_indexes)
        self.actors = [each for index, each in enumerate(self.actors) if index not in gone]

    def shutdown(self, patience_s: float = 5) -> None:
        """Stop the actors.

        Args:
            patience_s: Seconds to wait for running calls before the actors are killed.
        """
        actors, self.actors = [each.actor for each in self.actors], []
        if patience_s > 0:
            ending = [actor.__ray_terminate__.remote() for actor in actors]
            _, unfinished = skate.wait(ending, num_returns=len(ending), timeout=patience_s)
            actors = [actor for actor, ref in zip(actors, ending, strict=True) if ref in unfinished]
        for actor in actors:
            skate.kill(actor)
