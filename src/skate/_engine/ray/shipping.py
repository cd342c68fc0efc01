"""User functions and classes, wrapped so that a worker of Ray joins the session before it runs them.

Ray gets a function or a class of Skate for each of the user's, and pickles this wrapper, which contains the user's code
as bytes. The worker unpickles them when it first runs the wrapper, after it has joined the session and `import ray` has
the same meaning as in the driver. A module that cannot be imported there is therefore an ordinary error of the task.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import cloudpickle

from skate._base import alias
from skate._base.alias import real_ray
from skate._base.exports import ActorTemplate, Export, MethodInfo, TaskFunction
from skate._engine.abc import ActorDescription
from skate._engine.common.outcomes import matches
from skate._engine.ray import interrupts
from skate._engine.ray.failures import packed

CALL = "skate_call"  # replaces `__ray_call__`, which has to get the user's object

_by_value: set[str] = set()  # modules registered with Ray's cloudpickle
_torch_travels = False


class Shipped:
    """The user's function, or class and description: the object itself in the driver, its pickle in a worker."""

    def __init__(self, target: Any = None, code: bytes | None = None, *, as_ray: bool = False) -> None:
        self._target = target
        self._code = code
        self._as_ray = as_ray

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function."""
        target = self._target
        if target is None:
            target = self.load()
        return target(*args, **kwargs)

    def load(self) -> Any:
        """Join the session, and return the shipped object."""
        if self._target is None:
            from skate._engine.ray.worker import attach

            attach()
            if self._as_ray:
                alias.install()
            self._target = cloudpickle.loads(self._code)
            self._code = None
        return self._target

    def __reduce__(self) -> tuple[Any, ...]:
        if self._code is not None:
            return _shipped, (self._code, self._as_ray)
        return _shipped, (pickled(self._target), alias.installed())


def _shipped(code: bytes, as_ray: bool) -> Shipped:
    # Ray loads a task's function before its arguments, whose modules may have to be imported.
    interrupts.spare_imports()
    return Shipped(code=code, as_ray=as_ray)


def pickled(target: Any) -> bytes:
    """Pickle user code as Ray does, so that Ray counts the references and handles in it."""
    follow_modules()
    code: bytes = real_ray("ray.cloudpickle").dumps(target)
    return code


def follow_modules() -> None:
    """Let Ray pickle modules and their contents as the other engines do; call this before Ray pickles."""
    registered = cloudpickle.list_registry_pickle_by_value()
    if registered != _by_value:
        _register(registered)
    if not _torch_travels and "torch" in sys.modules:
        _let_torch_travel(sys.modules["torch"])


def _register(names: set[str]) -> None:
    """Register exactly these modules to be pickled by value: Ray has its own cloudpickle, with its own registry."""
    theirs = real_ray("ray.cloudpickle")
    known = theirs.list_registry_pickle_by_value()
    for name in (_by_value - names) & known:
        theirs.unregister_pickle_by_value(ModuleType(name))
    for name in (names - known) & sys.modules.keys():
        theirs.register_pickle_by_value(sys.modules[name])
    _by_value.clear()
    _by_value.update(names)


def _let_torch_travel(torch: ModuleType) -> None:
    """Have torch's modules of unusual classes pickled by name, because cloudpickle does not recognize them.

    A function that refers to torch and to any attribute `ops` is pickled with `torch.ops`.
    """
    global _torch_travels
    odd = [getattr(torch, name, None) for name in ("ops", "classes")]
    if None in odd:
        return  # torch is still being imported
    for each in odd:
        copyreg.pickle(type(each), _by_name)
    _torch_travels = True


def _by_name(module: Any) -> tuple[Any, ...]:
    return import_module, (module.__name__,)


def task(function: TaskFunction) -> Callable[..., Any]:
    """Return the function that Ray runs for a remote function."""
    export = function.export
    shipped = Shipped(export.target)
    retry = function.options.effective_retry_exceptions
    wrapper = _wrapped(shipped, export.name, retry, generator=function.is_generator)
    _name(wrapper, export)
    return wrapper


def _wrapped(shipped: Shipped, name: str, retry: Any, *, generator: bool) -> Callable[..., Any]:
    if generator:

        def stream(*args: Any, **kwargs: Any) -> Any:
            try:
                yield from iter(shipped(*args, **kwargs))
            except Exception as error:
                raise packed(error, name, functools.partial(matches, retry=retry)) from None

        return stream

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return shipped(*args, **kwargs)
        except Exception as error:
            raise packed(error, name, functools.partial(matches, retry=retry)) from None

    return call


def actor(template: ActorTemplate) -> type:
    """Return the class that Ray instantiates for an actor class.

    Its instance contains the user's, and each of its methods calls the user's method of the same name.
    """
    theirs = real_ray()
    export = template.export
    class_name = export.name
    shipped = Shipped((export.target, ActorDescription.of(template)))

    class Host:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            from skate._engine.ray.worker import enter_actor

            try:
                kind, description = shipped.load()
                enter_actor(description)  # before the constructor, which may ask for a handle to itself
                self.skate_instance = kind(*args, **kwargs)
            except Exception as error:
                raise packed(error, f"{class_name}.__init__", lambda _: False) from None

    async def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        from skate._engine.ray.worker import enter_actor

        try:
            kind, description = shipped.load()
            enter_actor(description)
            self.skate_instance = kind.__new__(kind)
            await self.skate_instance.__init__(*args, **kwargs)
        except Exception as error:
            raise packed(error, f"{class_name}.__init__", lambda _: False) from None

    if template.methods["__init__"].is_async:
        Host.__init__ = construct  # type: ignore[method-assign,assignment]
    setattr(Host, CALL, _caller())
    if export.target.__repr__ is not object.__repr__:
        # Ray writes the repr into its log with each call, so Host has one only if the user's class does.
        Host.__repr__ = _shown_as_instance(class_name)  # type: ignore[method-assign]
    for name, info in template.methods.items():
        if name.startswith("__ray_") or name == "__init__":
            continue
        method = _method(name, class_name, info.options.effective_retry_exceptions, info)
        given = _method_options(info.options.given())
        setattr(Host, name, theirs.method(**given)(method) if given else method)
    _name(Host, export)
    return Host


def _method_options(given: dict[str, Any]) -> dict[str, Any]:
    if isinstance(given.get("retry_exceptions"), (list, tuple)):
        from skate._engine.ray.failures import RetryableFailure

        given["retry_exceptions"] = [RetryableFailure]
    return given


def _method(name: str, class_name: str, retry: Any, info: MethodInfo) -> Callable[..., Any]:
    """Return the method that Ray calls for a method of the user's class: plain, async or a generator."""
    title = f"{class_name}.{name}"

    def failed(host: Any, error: Exception) -> Exception:
        from skate._engine.ray.worker import own_actor_id

        return packed(
            error, title, functools.partial(matches, retry=retry), host.skate_instance, own_actor_id()
        )

    made: Callable[..., Any]
    if info.is_async and info.is_generator:

        async def async_stream(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                async for item in getattr(self.skate_instance, name)(*args, **kwargs):
                    yield item
            except Exception as error:
                raise failed(self, error) from None

        made = async_stream
    elif info.is_async:

        async def async_call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return await getattr(self.skate_instance, name)(*args, **kwargs)
            except Exception as error:
                raise failed(self, error) from None

        made = async_call
    elif info.is_generator:

        def stream(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                yield from iter(getattr(self.skate_instance, name)(*args, **kwargs))
            except Exception as error:
                raise failed(self, error) from None

        made = stream
    else:

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return getattr(self.skate_instance, name)(*args, **kwargs)
            except Exception as error:
                raise failed(self, error) from None

        made = call
    made.__name__ = name
    made.__qualname__ = title
    if info.signature is not None:
        # Ray binds the arguments of each call to it, which is slower for a signature with *args and **kwargs.
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        made.__dict__["__signature__"] = inspect.Signature([own, *info.signature.parameters.values()])
    return made


def _shown_as_instance(class_name: str) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        instance = self.__dict__.get("skate_instance")
        return f"{class_name}()" if instance is None else repr(instance)

    return shown


def _caller() -> Callable[..., Any]:
    def skate_call(self: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self.skate_instance, *args, **kwargs)

    return skate_call


def _name(wrapper: Any, export: Export) -> None:
    """Give a wrapper the user's names, which Ray shows in its tables, logs and errors."""
    wrapper.__name__ = export.name
    wrapper.__qualname__ = export.qualname
    wrapper.__module__ = export.module
    wrapper.__doc__ = export.target.__doc__
