"""Model multiplexing: many models on few replicas. Requests go to the replicas that have loaded their model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, overload

from skate.air import _arguments as arguments
from skate.serve._batching.batches import batch_requests
from skate.serve._multiplex.cache import ModelCache
from skate.serve._multiplex.metrics import ModelMetrics
from skate.serve._multiplex.registry import close_registry, registry
from skate.serve._runtime.method_state import MethodState
from skate.serve.context import _get_replica, _get_request

__all__ = ["get_multiplexed_model_id", "loaded_model_ids", "multiplexed", "on_change", "unload_models"]

HEADER: Final = "serve_multiplexed_model_id"
NO_LIMIT: Final = -1

M = TypeVar("M")
_Loader = Callable[..., Coroutine[Any, Any, M]]


@overload
def multiplexed(func: _Loader[M], max_num_models_per_replica: int = 3) -> _Loader[M]: ...
@overload
def multiplexed(
    func: None = None, max_num_models_per_replica: int = 3
) -> Callable[[_Loader[M]], _Loader[M]]: ...
def multiplexed(func: Callable[..., Any] | None = None, max_num_models_per_replica: int = 3) -> Any:
    """Cache the models that an async function loads by id.

    The function takes the id of a model. For a loaded model it returns the cached one, and concurrent callers of a new
    model share one load. When the cache is full, the least recently used model is evicted: its `__del__`, which may be
    async, runs before the next model loads.

    Called without an id, the function loads the model that the current request names. Serve sends requests for a model
    to a replica that has loaded it.

    Args:
        func: The function: `async def get_model(self, model_id: str)`.
        max_num_models_per_replica: The most models that each replica keeps; -1 for no limit.

    Raises:
        TypeError: If the decorated object is not an async function of one argument, or the limit is not an integer.
        ValueError: If the limit is neither positive nor -1.

    Example:
        >>> import asyncio
        >>> @multiplexed(max_num_models_per_replica=2)
        ... async def get_model(model_id: str) -> str:
        ...     print("loading", model_id)
        ...     return f"model {model_id}"
        >>> async def main() -> list[str]:
        ...     return [await get_model(model_id) for model_id in ["a", "b", "a", "c", "b"]]
        >>> asyncio.run(main())
        loading a
        loading b
        loading c
        loading b
        ['model a', 'model b', 'model a', 'model c', 'model b']
    """
    if func is not None:
        _check_loader(func)
    limit = max_num_models_per_replica
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"max_num_models_per_replica is a number of models, not {arguments.shown(limit)}.")
    if limit < 1 and limit != NO_LIMIT:
        raise ValueError(
            f"max_num_models_per_replica is {limit}: give a positive number, or -1 for no limit."
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check_loader(function)
        models = _Models(function, None if limit == NO_LIMIT else limit)

        @functools.wraps(function)
        async def get_model(*args: Any, **kwargs: Any) -> Any:
            cache, model_id = models.wanted(args, kwargs)
            return await cache.get(model_id)

        return get_model

    return decorate if func is None else decorate(func)


def get_multiplexed_model_id() -> str:
    """Return the id of the model that the current request names, or "".

    A client names it in the header `serve_multiplexed_model_id`, a caller with
    `handle.options(multiplexed_model_id=...)`. In a batched function, all requests of the batch name the same model.
    """
    in_batch = batch_requests()
    request = in_batch[0] if in_batch else _get_request()
    return "" if request is None else request.multiplexed_model_id


def loaded_model_ids() -> frozenset[str]:
    """Return the ids of the models that this replica has loaded or is loading."""
    return registry().ids()


def on_change(callback: Callable[[frozenset[str]], None]) -> Callable[[], None]:
    """Call a function with `loaded_model_ids()` whenever they change, on the loop that loads.

    Returns:
        A function that removes the callback.
    """
    return registry().on_change(callback)


async def unload_models() -> None:
    """Unload all models of this replica, one after the other, and call their `__del__`."""
    await close_registry()


class _Models:
    """Find the cache of a call: one per object, or one for a function. It is pickled without models."""

    def __init__(self, function: Callable[..., Any], limit: int | None) -> None:
        self.__setstate__((function, limit))

    def __getstate__(self) -> tuple[Callable[..., Any], int | None]:
        return self._function, self._limit

    def __setstate__(self, state: tuple[Callable[..., Any], int | None]) -> None:
        self._function, self._limit = state
        self._owners = MethodState(self._function, "@serve.multiplexed")
        self._name = getattr(self._function, "__qualname__", repr(self._function))
        self._cache: ModelCache | None = None  # for calls without an object

    def wanted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[ModelCache, str]:
        """Return the cache of a call, and the requested model id."""
        if args and self._owners.is_owner(args[0]):
            return self._cache_of(args[0]), self._id(args[1:], kwargs)
        if self._cache is None:
            self._cache = self._new_cache(self._function, None)
        return self._cache, self._id(args, kwargs)

    def _cache_of(self, owner: Any) -> ModelCache:
        attributes = self._owners.attributes_of(owner)
        cache: ModelCache | None = attributes.get(self._owners.key)
        if cache is None or cache.owner is not owner:  # a copied object carries the cache of the original
            cache = self._new_cache(functools.partial(self._function, owner), owner)
            attributes[self._owners.key] = cache
        return cache

    def _new_cache(self, load: Callable[[str], Awaitable[Any]], owner: Any) -> ModelCache:
        cache = ModelCache(load, self._limit, _Watcher(), owner)
        registry().add(cache)
        return cache

    def _id(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        given = (*args, *kwargs.values())
        if len(given) > 1:
            raise TypeError(f"{self._name}() takes only the id of a model, got {len(given)} arguments.")
        model_id = given[0] if given else get_multiplexed_model_id()
        if not isinstance(model_id, str):
            raise TypeError(f"The id of a model must be a string, got {model_id!r}.")
        if not model_id:
            raise ValueError(
                f"The request names no model. Name one in its header '{HEADER}', in a call with "
                f"handle.options(multiplexed_model_id=...), or pass an id to {self._name}()."
            )
        return model_id


class _Watcher:
    """Forward the events of a cache to the replica and its metrics."""

    def __init__(self) -> None:
        self._registry = registry()
        self._measures = None if _get_replica() is None else ModelMetrics()

    def ids_changed(self) -> None:
        self._registry.notify()
        if self._measures is not None:
            self._measures.count(len(self._registry.ids()))

    def was_loaded(self, seconds: float) -> None:
        if self._measures is not None:
            self._measures.was_loaded(seconds)

    def was_unloaded(self, seconds: float) -> None:
        if self._measures is not None:
            self._measures.was_unloaded(seconds)


def _check_loader(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"@serve.multiplexed decorates an async function or method, not {function!r}.")
    if not inspect.iscoroutinefunction(function):
        raise TypeError(
            f"@serve.multiplexed decorates an async function or method, and {function!r} is not async: write 'async "
            "def'."
        )
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) not in (1, 2):  # the id, with or without `self`
        raise TypeError(
            "@serve.multiplexed decorates a function that takes the id of a model and nothing else, but "
            f"{function.__qualname__} takes {', '.join(parameters) or 'nothing'}."
        )
