"""User-defined functions, as a step calls them."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from skate.data._exec import meter
from skate.data._exec.retries import Retries
from skate.data.exceptions import user_error

# Instances of user classes, one per use of the class in a plan; they live as long as the process.
_instances: dict[str, Any] = {}


def instance_keys() -> set[str]:
    """Return the keys of the instances that this process has."""
    return set(_instances)


def drop_instances(keys: Iterable[str]) -> None:
    """Drop instances of user classes."""
    for key in keys:
        _instances.pop(key, None)


class Udf:
    """A function, a callable object or a class of callable objects, with its further arguments.

    Args:
        function: The function, object or class.
        args: Positional arguments after the row or batch.
        kwargs: Keyword arguments.
        constructor_args: Positional arguments of the constructor of a class.
        constructor_kwargs: Keyword arguments of the constructor of a class.
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
        """Whether workers create instances of it."""
        return inspect.isclass(self.function)

    @property
    def name(self) -> str:
        """The name of the function or class."""
        function = self.function
        name = getattr(function, "__name__", None) or getattr(
            getattr(function, "func", None), "__name__", None
        )
        return name or type(function).__name__

    def prepare(self) -> None:
        """Create the instance of a class, unless this process has one."""
        if self.is_class and self._key not in _instances:
            with meter.current().user:
                retries = Retries.of_constructors()
                try:
                    made = self._construct() if retries is None else retries.call(self._construct)
                except Exception as error:
                    raise user_error(error) from error.__cause__
            _instances[self._key] = made

    def _construct(self) -> Any:
        return self.function(*self.constructor_args, **self.constructor_kwargs)

    def bind(self) -> Callable[[Any], Any]:
        """Return a callable that takes a row or a batch."""
        self.prepare()
        function = _instances[self._key] if self.is_class else self.function
        args, kwargs = self.args, self.kwargs
        if not args and not kwargs:
            return function  # type: ignore[no-any-return]
        return lambda value: function(value, *args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether a call returns an awaitable or an asynchronous generator."""
        function = self.function
        if inspect.isclass(function) or not inspect.isroutine(function):
            function = getattr(function, "__call__", function)  # noqa: B004  # inspect the method
        return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def run_async(
    function: Callable[[Any], Any],
    values: Iterator[Any],
    at_once: int,
    retries: Retries | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Call an asynchronous function with several values concurrently; yield each value with its result, in order.

    The result of an asynchronous generator is the list of the values that it yields.

    Args:
        function: The function.
        values: Its arguments.
        at_once: Number of concurrent calls.
        retries: The errors after which the function is called again with the same value.
    """
    import asyncio  # few datasets need it

    async def call(value: Any) -> Any:
        made = function(value)
        if isinstance(made, AsyncIterator) or hasattr(made, "__aiter__"):
            return [each async for each in made]
        return await made

    async def call_again(value: Any) -> Any:
        return await (call(value) if retries is None else retries.call_async(lambda: call(value)))

    loop = asyncio.new_event_loop()
    running: list[tuple[Any, asyncio.Task[Any]]] = []
    try:
        for value in values:
            running.append((value, loop.create_task(call_again(value))))
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
