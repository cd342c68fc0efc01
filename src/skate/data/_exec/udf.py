"""Functions that the user wrote, as a step calls them."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from skate.data._exec import meter
from skate.data.exceptions import user_error

# Instances of users' classes, one for each place where a plan uses the class: they stay as long as the process.
_instances: dict[str, Any] = {}


class Udf:
    """A function, a callable object or a class whose instances are called, with the arguments it gets besides.

    Args:
        function: What the user gave.
        args: Given after the row or batch.
        kwargs: Given by name.
        constructor_args: For a class: what its instance is made with.
        constructor_kwargs: For a class: what its instance is made with, by name.
    """

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        constructor_args: tuple[Any, ...] | None = None,
        constructor_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.args = tuple(args or ())
        self.kwargs = dict(kwargs or {})
        self.constructor_args = tuple(constructor_args or ())
        self.constructor_kwargs = dict(constructor_kwargs or {})
        self._key = uuid.uuid4().hex

    @property
    def is_class(self) -> bool:
        """Whether instances of it are made in workers."""
        return inspect.isclass(self.function)

    @property
    def name(self) -> str:
        """What the user calls it."""
        function = self.function
        name = getattr(function, "__name__", None) or getattr(
            getattr(function, "func", None), "__name__", None
        )
        return name or type(function).__name__

    def prepare(self) -> None:
        """Make the instance, if it is a class, unless this process has one."""
        if self.is_class and self._key not in _instances:
            with meter.current().user:
                try:
                    made = self.function(*self.constructor_args, **self.constructor_kwargs)
                except Exception as error:
                    raise user_error(error) from error.__cause__
            _instances[self._key] = made

    def bound(self) -> Callable[[Any], Any]:
        """Return what to call with a row or a batch."""
        self.prepare()
        function = _instances[self._key] if self.is_class else self.function
        args, kwargs = self.args, self.kwargs
        if not args and not kwargs:
            return function  # type: ignore[no-any-return]
        return lambda value: function(value, *args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether a call returns something to wait for, or an asynchronous generator."""
        function = self.function
        if inspect.isclass(function) or not inspect.isroutine(function):
            function = getattr(function, "__call__", function)  # noqa: B004  # the method is what is inspected
        return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def run_async(
    function: Callable[[Any], Any], values: Iterator[Any], at_once: int
) -> Iterator[tuple[Any, Any]]:
    """Call an asynchronous function with many values at a time; yield each value with its result, in order.

    An asynchronous generator's result is the list of what it yields.
    """

    async def call(value: Any) -> Any:
        made = function(value)
        if isinstance(made, AsyncIterator) or hasattr(made, "__aiter__"):
            return [each async for each in made]
        return await made

    loop = asyncio.new_event_loop()
    running: list[tuple[Any, asyncio.Task[Any]]] = []
    try:
        for value in values:
            running.append((value, loop.create_task(call(value))))
            if len(running) >= at_once:
                value, task = running.pop(0)
                yield value, loop.run_until_complete(task)
        while running:
            value, task = running.pop(0)
            yield value, loop.run_until_complete(task)
    finally:
        for _, task in running:
            task.cancel()
        if running:
            loop.run_until_complete(asyncio.gather(*(task for _, task in running), return_exceptions=True))
        loop.close()
