"""Give trainables large objects or resources."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import skate
from skate.tune.execution.placement_groups import PlacementGroupFactory, resource_dict_to_pg_factory
from skate.tune.trainable.trainable import Trainable

__all__ = ["with_parameters", "with_resources"]

Resources = Mapping[str, float] | PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory]

_ONE_CPU = resource_dict_to_pg_factory()


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """Pass objects to every trial through the object store, so that each is stored once.

    Args:
        trainable: A function, or a subclass of `Trainable`. The function, or the method `setup` of the class, receives
            the objects as keyword arguments after the configuration.
        **kwargs: The objects, or references to them, by name.

    Returns:
        A trainable that takes only the configuration.

    Raises:
        TypeError: The trainable is neither a function nor a subclass of `Trainable`.
    """
    if not callable(trainable) or (inspect.isclass(trainable) and not issubclass(trainable, Trainable)):
        raise TypeError(
            f"`trainable` must be a function or a subclass of skate.tune.Trainable, not {trainable!r}."
        )
    references = {
        name: value if isinstance(value, skate.ObjectRef) else skate.put(value)
        for name, value in kwargs.items()
    }
    if is_trainable_class(trainable):
        return _class_with_parameters(trainable, references)

    @functools.wraps(trainable)
    def function(config: dict[str, Any]) -> Any:
        return trainable(config, **_fetch(references))

    function._resources = getattr(trainable, "_resources", None)  # type: ignore[attr-defined]
    return function


def _fetch(references: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(references, skate.get(list(references.values())), strict=True))


def _class_with_parameters(kind: type[Trainable], references: Mapping[str, Any]) -> type[Trainable]:
    class WithParameters(kind):  # type: ignore[misc,valid-type]
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config, **_fetch(references))

    WithParameters.__name__ = kind.__name__
    WithParameters.__qualname__ = kind.__qualname__
    WithParameters.__module__ = kind.__module__
    return WithParameters


def with_resources(trainable: Any, resources: Resources) -> Any:
    """Set the resources of every trial of a trainable.

    Args:
        trainable: A function or a subclass of `Trainable`.
        resources: Amounts by name such as `{"cpu": 2, "gpu": 0.5}`, a `PlacementGroupFactory`, or a function that
            returns one for a configuration.

    Raises:
        TypeError: The trainable or the resources have the wrong type.
    """
    if not callable(trainable) or (inspect.isclass(trainable) and not issubclass(trainable, Trainable)):
        raise TypeError(
            f"`trainable` must be a function or a subclass of skate.tune.Trainable, not {trainable!r}."
        )
    if not isinstance(resources, Mapping | PlacementGroupFactory) and not callable(resources):
        raise TypeError(
            f"`resources` must be a dictionary, a PlacementGroupFactory or a function, not {resources!r}."
        )
    if not inspect.isclass(trainable):

        @functools.wraps(trainable)
        def function(config: dict[str, Any], **parameters: Any) -> Any:
            return trainable(config, **parameters)

        function._resources = resources  # type: ignore[attr-defined]
        return function

    class WithResources(trainable):  # type: ignore[misc]
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
            return resolve(resources, config)

    WithResources.__name__ = trainable.__name__
    WithResources.__qualname__ = trainable.__qualname__
    WithResources.__module__ = trainable.__module__
    return WithResources


def is_trainable_class(trainable: Any) -> TypeGuard[type[Trainable]]:
    """Return whether a trainable is a class, not a function."""
    return inspect.isclass(trainable) and issubclass(trainable, Trainable)


def trainable_name(trainable: Any) -> str:
    """Return the name of a trainable: its registered name, its attribute `_name`, or the name of the object."""
    if isinstance(trainable, str):
        return trainable
    given = getattr(trainable, "_name", None) or getattr(trainable, "__name__", type(trainable).__name__)
    return str(given).strip("<>")  # of a lambda


def resolve(resources: Resources, config: dict[str, Any]) -> PlacementGroupFactory:
    """Return the resources of a trial with this configuration."""
    if isinstance(resources, PlacementGroupFactory):
        return resources
    if isinstance(resources, Mapping):
        return resource_dict_to_pg_factory(resources)
    found = resources(config)
    return found if isinstance(found, PlacementGroupFactory) else resource_dict_to_pg_factory(found)


def resources_of(trainable: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """Return the resources of a trial: those of `with_resources`, of the class, or one CPU."""
    if is_trainable_class(trainable):
        wanted = trainable.default_resource_request(config)
        return resolve(wanted, config) if wanted else _ONE_CPU
    given = getattr(trainable, "_resources", None)
    return _ONE_CPU if given is None else resolve(given, config)
