"""Remote functions, which `@skate.remote` makes of functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import skate._engine as engines
from skate._base.exports import Export, TaskFunction, declared
from skate._base.lazy_names import lazy_names
from skate._base.object_ref import ObjectRef
from skate._base.options import ActorOptions, TaskOptions, check_num_returns

__all__ = ["RemoteFunction"]

if TYPE_CHECKING:
    from skate._base.generator import ObjectRefGenerator as ObjectRefGenerator
    from skate.util.scheduling_strategies import (
        PlacementGroupSchedulingStrategy as PlacementGroupSchedulingStrategy,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "ObjectRefGenerator": "skate._base.generator.ObjectRefGenerator",
            "PlacementGroupSchedulingStrategy": "skate.util.scheduling_strategies.PlacementGroupSchedulingStrategy",
        },
    )

P = ParamSpec("P")
R = TypeVar("R")


class RemoteFunction(Generic[P, R]):
    """A function whose `.remote(…)` runs it as a task and returns a reference to the result."""

    def __init__(self, function: Callable[P, R], options: dict[str, Any]) -> None:
        if inspect.iscoroutinefunction(function):
            raise ValueError(
                f"{function.__name__} is a coroutine function ('async def'), which a task cannot run. Make it a method "
                "of an actor, or call asyncio.run(...) in a plain function."
            )
        parsed = TaskOptions.parse(options)
        self._function = function
        self._options = parsed
        self._core = TaskFunction(Export(function, getattr(function, "__name__", None)), parsed)
        check_num_returns(parsed.num_returns, is_generator=self._core.is_generator)
        check_options(self._core.export.name, parsed)
        self._signature: inspect.Signature | None = None
        # Ray's hook that wraps submission.
        self._decorator = getattr(function, "__ray_invocation_decorator__", None)
        functools.update_wrapper(self, function)
        declared.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Raise TypeError: remote functions are called with `.remote(…)`."""
        raise TypeError(
            f"The remote function {self._function.__name__} cannot be called directly. Run it as a task with "
            f"{self._function.__name__}.remote(...)."
        )

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[R]:
        """Run the function as a task; return a reference to its result."""
        return self._submit(self._core, args, kwargs)

    def _submit(self, core: TaskFunction, args: Any, kwargs: dict[str, Any]) -> ObjectRef[R]:
        decorator = self._decorator
        if decorator is not None:
            return cast(
                "ObjectRef[R]", decorator(functools.partial(self._submit_plainly, core))(args, kwargs)
            )
        return self._submit_plainly(core, args, kwargs)

    def _submit_plainly(self, core: TaskFunction, args: Any, kwargs: dict[str, Any]) -> ObjectRef[R]:
        args = tuple(args)
        self._check_call(args, kwargs)
        return cast("ObjectRef[R]", engines.current().submit(core, args, kwargs))

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        return self.options(**options).remote(*(args or ()), **(kwargs or {}))

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        signature = self._signature
        if signature is None:
            signature = self._signature = signature_of(self._function)
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = positional_bounds(signature)
        if kwargs or not bounds[0] <= len(args) <= bounds[1]:
            check_arguments(signature, self._function.__name__, args, kwargs)

    def options(self, **options: Any) -> _WithOptions[R]:
        """Return the function with these options."""
        return _WithOptions(self, self._options.merged(options))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return a node of a lazy graph that calls the function."""
        from skate.dag import FunctionNode

        return FunctionNode(self, args, kwargs, self._options.given())

    @functools.cached_property  # programs may set it, as in Ray
    def _function_name(self) -> str:
        return f"{self._function.__module__}.{self._function.__qualname__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._function, self._options)

    def __repr__(self) -> str:
        return f"RemoteFunction({self._function.__name__})"

    _bounds: tuple[int, int] | None = None  # the result of `positional_bounds`, after the first call


class _WithOptions(Generic[R]):
    """A remote function with options of `.options(…)`."""

    def __init__(self, function: RemoteFunction[Any, R], options: TaskOptions) -> None:
        self._remote_function = function
        self._options = options
        self._core = TaskFunction(function._core.export, options)
        check_num_returns(options.num_returns, is_generator=self._core.is_generator)
        check_options(self._core.export.name, options)

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[R]:
        """Run the function as a task; return a reference to its result."""
        return self._remote_function._submit(self._core, args, kwargs)

    def options(self, **options: Any) -> _WithOptions[R]:
        """Return the function with more options."""
        return _WithOptions(self._remote_function, self._options.merged(options))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return a node of a lazy graph that calls the function."""
        from skate.dag import FunctionNode

        return FunctionNode(self._remote_function, args, kwargs, self._options.given())


def _rebuild(function: Callable[..., Any], options: TaskOptions) -> RemoteFunction[Any, Any]:
    return RemoteFunction(function, options.given())


def check_options(name: str, options: TaskOptions | ActorOptions) -> None:
    """Raise ValueError or TypeError if options have an invalid runtime environment or placement group."""
    if (
        options.scheduling_strategy is not None
        or options.placement_group != "default"
        or options.placement_group_bundle_index is not None
    ):
        from skate._placement_group import check_placement

        check_placement(name, options)
    _check_environment(options)


def _check_environment(options: TaskOptions | ActorOptions) -> None:
    if options.runtime_env:
        from skate._base.runtime_envs.inheritance import for_task

        for_task(options.runtime_env)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature that calls are checked against."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):  # some builtins have none: all arguments are accepted
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


def positional_bounds(signature: inspect.Signature) -> tuple[int, int]:
    """Return the least and the most positional arguments of a call without keyword arguments.

    Comparing with these numbers is faster than binding the arguments, which takes microseconds. No number is in the
    bounds if the function has a required keyword-only parameter.
    """
    least = most = 0
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            if parameter.default is parameter.empty:
                least += 1
        elif parameter.kind is parameter.VAR_POSITIONAL:
            most = 1 << 30
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            return 0, -1
    return least, most


def check_arguments(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise TypeError for wrong arguments here, at the call, instead of in a worker."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{error} (in the call of the remote function {name}{signature})") from None
