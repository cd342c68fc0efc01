"""Models by id, loaded when first asked for; the one that was not used for longest makes room."""

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
    """Whoever wants to know what happens in a cache."""

    def ids_changed(self) -> None:
        """Note that other models are loaded, or being loaded, than before."""

    def was_loaded(self, seconds: float) -> None:
        """Note that a model was loaded, and how long that took."""

    def was_unloaded(self, seconds: float) -> None:
        """Note that a model was let go, and how long that took."""


@dataclass
class _Load:
    """A model that is being loaded, and how many wait for it."""

    task: asyncio.Task[Any]
    waiters: int = 0


class ModelCache:
    """Keeps up to so many models, of those that load and those that are being unloaded too.

    Args:
        load: Loads the model with an id.
        limit: How many there may be; None for any number.
        watcher: Told of what happens.
        owner: The object whose method loads, if it is one.
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
        self._models: OrderedDict[str, Any] = OrderedDict()  # the last used one is the last
        self._loads: dict[str, _Load] = {}
        self._places_taken = 0
        self._place_is_free: asyncio.Future[None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # An object may be copied or pickled; its models stay with the original.
        return type(None), ()

    @property
    def ids(self) -> list[str]:
        """The models that are loaded, from the one that was not used for longest, then those that load."""
        return [*self._models, *self._loads]

    async def get(self, model_id: str) -> Any:
        """Return a model, from here or newly loaded; several that ask at once wait for one load."""
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
                self._forget_load(model_id, load)  # whoever comes next does not want one that ends like this

    async def clear(self) -> None:
        """Let go of all models, and of those that are being loaded; an error of one does not save the others."""
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
        own.run(_become_independent)
        task = asyncio.get_running_loop().create_task(self._load(model_id), context=own)
        task.add_done_callback(_observe)
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
                self._give_place()
                raise
            self._models[model_id] = model
            self._wake()  # it can be let go again, should somebody wait for its place
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
        """Wait until there is room for one more model, and make some."""
        while self._limit is not None and self._places_taken >= self._limit:
            if self._models:
                await self._unload_oldest()
            else:  # all places are those of models on their way in or out
                if self._place_is_free is None:
                    self._place_is_free = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._place_is_free)
        self._places_taken += 1

    def _give_place(self) -> None:
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
            await finalise(model)
        finally:
            self._give_place()
            self._watcher.was_unloaded(loop.time() - start)


async def finalise(model: Any) -> None:
    """Run a model's `__del__` now, though requests may still hold it, and only now."""
    ending = getattr(model, "__del__", None)
    if ending is None:
        return
    try:
        if inspect.iscoroutinefunction(ending):
            await ending()
        else:
            await asyncio.to_thread(ending)  # it may well block
    finally:
        del ending
        _quieten(model)


def _quieten(model: Any) -> None:
    """Keep Python from calling a `__del__` again that has been called."""
    kind = type(model)
    try:
        if any("__init_subclass__" in vars(cls) for cls in kind.__mro__[:-1]):
            raise TypeError("it would take this for a class of its user's")
        model.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "__del__": lambda _: None})
    except TypeError as error:
        _logger.debug("the __del__ of a %s will run again when its memory is freed: %s", kind.__name__, error)


def _become_independent() -> None:
    """Let what is loaded for one request not be cancelled with it: others wait for it too."""
    request = context._get_request()
    if request is not None:
        context._request.set(replace(request, children=set()))


def _observe(task: asyncio.Task[Any]) -> None:
    # Those who wait raise the error; where nobody does, it is of no interest.
    if not task.cancelled():
        task.exception()
