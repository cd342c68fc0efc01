"""The user's class or function in a replica."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from skate._api import variables
from skate.serve.exceptions import RayServeException

if TYPE_CHECKING:
    from skate.serve.context import ReplicaContext

__all__ = ["ThreadLimit", "UserCode", "is_asynchronous"]

logger = logging.getLogger("skate.serve")

_END = object()


def _runs_sync_in_threads() -> bool:
    return variables.flag("SERVE_RUN_SYNC_IN_THREADPOOL", True)


class UserCode:
    """An instance of the user's class, or the user's function.

    Coroutines run on the replica's event loop. Other functions run in threads, as many as `max_ongoing_requests`, so
    that blocking code does not delay other requests.
    """

    def __init__(self, target: Callable[..., Any], concurrency: int) -> None:
        self.target = target
        self.is_function = not inspect.isclass(target)
        self.instance: Any = target if self.is_function else None
        self._methods: dict[str, tuple[Callable[..., Any], bool]] = {}
        self._threads = ThreadPoolExecutor(max(1, min(concurrency, 1024)), "skate-serve-sync")
        self._in_threads = _runs_sync_in_threads()

    async def create(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Create the instance. `__init__` may be a coroutine function."""
        if self.is_function:
            return
        kind: Any = self.target
        instance = (
            kind.__new__(kind, *args, **kwargs) if kind.__new__ is not object.__new__ else kind.__new__(kind)
        )
        made: Any = instance.__init__(*args, **kwargs)
        if inspect.isawaitable(made):
            await made
        self.instance = instance

    def method(self, name: str) -> tuple[Callable[..., Any], bool]:
        """Return a method, and whether to call it on the event loop."""
        found = self._methods.get(name)
        if found is None:
            function = self._find(name)
            direct = is_asynchronous(function) or not self._in_threads
            found = self._methods[name] = function, direct
        return found

    def _find(self, name: str) -> Callable[..., Any]:
        if self.is_function:
            if name == "__call__":
                return self.target
            raise RayServeException(
                f"Tried to call the method '{name}' of a deployment that is a function: use "
                "handle.remote(...)."
            )
        function = getattr(self.instance, name, None)
        if not callable(function):
            known = sorted(
                each
                for each in dir(self.instance)
                if (not each.startswith("_") or each == "__call__")
                and callable(getattr(self.instance, each, None))
            )
            raise RayServeException(f"The deployment has no method {name!r}. It has {', '.join(known)}.")
        return function  # type: ignore[no-any-return]

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method, and return its value or generator."""
        function, direct = self.method(name)
        if direct:
            result = function(*args, **kwargs)
            return await result if inspect.iscoroutine(result) else result
        return await self.in_thread(function, *args, **kwargs)

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in a thread, with the context of the request."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._threads, lambda: context.run(function, *args, **kwargs))
        return await result if inspect.iscoroutine(result) else result

    async def items(self, produced: Iterator[Any] | AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Iterate over a generator of either kind. A synchronous one runs in a thread."""
        if hasattr(produced, "__aiter__"):
            async for item in produced:
                yield item
            return
        iterator = iter(produced)
        try:
            while True:
                item = (
                    await self.in_thread(next, iterator, _END) if self._in_threads else next(iterator, _END)
                )
                if item is _END:
                    return
                yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    @property
    def reconfigure_takes_rank(self) -> bool:
        """Whether `reconfigure` takes the rank. It is then called without a `user_config`, too."""
        function = None if self.is_function else getattr(self.instance, "reconfigure", None)
        return function is not None and "rank" in inspect.signature(function).parameters

    async def reconfigure(self, user_config: Any, replica: ReplicaContext) -> None:
        """Call `reconfigure` with the `user_config`, and with the rank if it takes one."""
        takes_rank = self.reconfigure_takes_rank
        if user_config is None and not takes_rank:
            return
        function = None if self.is_function else getattr(self.instance, "reconfigure", None)
        if function is None:
            what = "a function" if self.is_function else f"the class {type(self.instance).__name__}"
            raise RayServeException(
                f"user_config is set, but the deployment is {what} without a method `reconfigure(self, user_config)`"
                " to receive it."
            )
        result = function(user_config, rank=replica.rank) if takes_rank else function(user_config)
        if inspect.isawaitable(result):
            await result

    @property
    def health_check(self) -> Callable[[], Any] | None:
        """The instance's `check_health`, or None."""
        return None if self.is_function else getattr(self.instance, "check_health", None)

    async def check_health(self) -> None:
        """Raise if `check_health` fails."""
        function = self.health_check
        if function is not None:
            result = function() if is_asynchronous(function) else await self.in_thread(function)
            if inspect.isawaitable(result):
                await result

    @property
    def has_autoscaling_stats(self) -> bool:
        """Whether the instance has `record_autoscaling_stats`."""
        return not self.is_function and hasattr(self.instance, "record_autoscaling_stats")

    @property
    def has_routing_stats(self) -> bool:
        """Whether the instance has `record_routing_stats`."""
        return not self.is_function and hasattr(self.instance, "record_routing_stats")

    async def routing_stats(self) -> dict[str, Any]:
        """Return the result of `record_routing_stats`."""
        result = self.instance.record_routing_stats()
        found: dict[str, Any] = await result if inspect.isawaitable(result) else result
        if not isinstance(found, dict):
            raise TypeError(f"record_routing_stats must return a dictionary, got {found!r}")
        return found

    async def destroy(self) -> None:
        """Call `__del__`, which may be a coroutine function, once."""
        instance, self.instance = self.instance, None
        function = None if self.is_function else getattr(type(instance), "__del__", None)
        if function is not None and instance is not None:
            try:
                result = function(instance)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("The __del__ of %s failed.", type(instance).__name__)
            # Prevent a second call at garbage collection.
            type(instance).__del__ = lambda _: None
        self._threads.shutdown(wait=False, cancel_futures=True)


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether a function must be called on the event loop."""
    if not (inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function)):
        # An object with `__call__`, a partial, or a decorated function.
        wrapped = getattr(function, "func", None) or type(function).__call__
        if wrapped is not None and wrapped is not function and inspect.isfunction(wrapped):
            return is_asynchronous(wrapped)
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        # A generator function returns immediately; its code runs during the iteration.
        or inspect.isgeneratorfunction(function)
        # A batched generator joins a batch when it is called, not when it is read.
        or getattr(function, "_runs_on_loop", False)
    )


class ThreadLimit:
    """Limit anyio's worker threads, which FastAPI and Starlette use, to `max_ongoing_requests`.

    Reading the limiter makes anyio import twenty modules. The limit is therefore set before the first code that may use
    such threads, and not at the start.

    Args:
        count: The most threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._is_set = False

    def change(self, count: int) -> None:
        """Change the limit."""
        self._count = count
        self._is_set = self._is_set and self._set()

    def apply(self) -> None:
        """Set the limit, if anyio has been imported."""
        if not self._is_set:
            self._is_set = self._set()

    def _set(self) -> bool:
        anyio = sys.modules.get("anyio.to_thread")
        if anyio is None:
            return False
        anyio.current_default_thread_limiter().total_tokens = self._count
        return True
