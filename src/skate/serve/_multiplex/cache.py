"""A cache of models by id, which loads on demand and evicts the least recently used model."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from skate.serve import context

_logger = logging.getLogger("skate.serve")


class Watcher(Protocol):
    """An observer of a cache."""

    def ids_changed(self) -> None:
        """Handle a change of the set of loaded and loading models."""

    def was_loaded(self, seconds: float) -> None:
        """Record the time to load a model."""

    def was_unloaded(self, seconds: float) -> None:
        """Record the time to unload a model."""


@dataclass
class _Load:
    """A model that is being loaded, and the number of its waiters."""

    task: asyncio.Task[Any]
    waiters: int = 0


class ModelCache:
    """Keeps a limited number of models, including those that are being loaded or unloaded.

    Args:
        load: Loads the model with an id.
        limit: The maximum number of models; None for no limit.
        watcher: An observer of the cache.
        owner: The object whose method loads models, if any.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[Any]],
        limit: int | None,
        watcher: Watcher,
        owner: Any = None,
    ) -> None:
        self.owner = owner
        self._load_model = load
        self._limit = limit
        self._watcher = watcher
        self._models: OrderedDict[str, Any] = OrderedDict()  # from the least to the most recently used
        self._loads: dict[str, _Load] = {}
        self._places_taken = 0
        self._place_is_free: asyncio.Future[None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # An object with a cache may be copied or pickled; the models stay with the original.
        return type(None), ()

    @property
    def ids(self) -> list[str]:
        """The loaded models from the least recently used one on, then those that are being loaded."""
        return [*self._models, *self._loads]

    async def get(self, model_id: str) -> Any:
        """Return a model, loading it if necessary; concurrent callers share one load."""
        if model_id in self._models:
            self._models.move_to_end(model_id)
            return self._models[model_id]
        load = self._loads.get(model_id)
        if load is None:
            load = self._loads[model_id] = _Load(self._start_loading(model_id))
            self._watcher.ids_changed()
        load.waiters += 1
        try:
            return await asyncio.shield(load.task)
        finally:
            load.waiters -= 1
            if not load.waiters and not load.task.done():
                load.task.cancel()
                self._forget_load(model_id, load)  # the next caller must not get the cancelled load

    async def clear(self) -> None:
        """Unload all models and cancel loads; an error in one does not affect the others."""
        loads = [load.task for load in self._loads.values()]
        self._loads.clear()
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        while self._models:
            model_id = next(iter(self._models))
            try:
                await self._unload_oldest()
            except Exception:
                _logger.exception("unloading model %r failed", model_id)
        self._watcher.ids_changed()

    def _start_loading(self, model_id: str) -> asyncio.Task[Any]:
        own = contextvars.copy_context()
        own.run(_detach_from_request)
        task = asyncio.get_running_loop().create_task(self._load(model_id), context=own)
        task.add_done_callback(_retrieve_exception)
        return task

    async def _load(self, model_id: str) -> Any:
        this = asyncio.current_task()
        try:
            await self._take_place()
            try:
                loop = asyncio.get_running_loop()
                start = loop.time()
                model = await self._load_model(model_id)
                self._watcher.was_loaded(loop.time() - start)
            except BaseException:
                self._release_place()
                raise
            self._models[model_id] = model
            self._wake()  # a load that waits for a place may evict it
            return model
        finally:
            load = self._loads.get(model_id)
            if load is not None and load.task is this:
                self._forget_load(model_id, load)

    def _forget_load(self, model_id: str, load: _Load) -> None:
        if self._loads.get(model_id) is load:
            del self._loads[model_id]
            self._watcher.ids_changed()

    async def _take_place(self) -> None:
        """Wait for a free place, unloading the least recently used model if necessary."""
        while self._limit is not None and self._places_taken >= self._limit:
            if self._models:
                await self._unload_oldest()
            else:  # all places belong to models that are being loaded or unloaded
                if self._place_is_free is None:
                    self._place_is_free = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._place_is_free)
        self._places_taken += 1

    def _release_place(self) -> None:
        self._places_taken -= 1
        self._wake()

    def _wake(self) -> None:
        waiting, self._place_is_free = self._place_is_free, None
        if waiting is not None:
            waiting.set_result(None)

    async def _unload_oldest(self) -> None:
        _, model = self._models.popitem(last=False)
        self._watcher.ids_changed()
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            await finalize(model)
        finally:
            self._release_place()
            self._watcher.was_unloaded(loop.time() - start)


async def finalize(model: Any) -> None:
    """Run a model's `__del__` method now and only once, even if requests still refer to the model."""
    ending = getattr(model, "__del__", None)
    if ending is None:
        return
    try:
        if inspect.iscoroutinefunction(ending):
            await ending()
        else:
            await asyncio.to_thread(ending)  # it may block
    finally:
        del ending
        _disable_finalizer(model)


def _disable_finalizer(model: Any) -> None:
    """Prevent Python from calling a `__del__` method again."""
    kind = type(model)
    try:
        if any("__init_subclass__" in vars(cls) for cls in kind.__mro__[:-1]):
            raise TypeError("its __init_subclass__ would run for the replacement class")
        model.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "__del__": lambda _: None})
    except TypeError as error:
        _logger.debug("the __del__ of a %s will run again when its memory is freed: %s", kind.__name__, error)


def _detach_from_request() -> None:
    """Detach the current context from its request, so that the load is not cancelled with it: others may wait."""
    request = context._get_request()
    if request is not None:
        context._request.set(replace(request, children=set()))


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    # Waiters raise the error; without waiters it can be ignored.
    if not task.cancelled():
        task.exception()
