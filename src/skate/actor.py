"""Actor classes, which `@skate.remote` makes of classes, and handles of actors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

import skate._engine as engines
from skate._base.exports import ActorTemplate, Export, MethodInfo, declared, is_async, is_generator
from skate._base.ids import ActorID
from skate._base.lazy_names import lazy_names
from skate._base.object_ref import ObjectRef
from skate._base.options import ActorOptions, MethodOptions, check_num_returns
from skate._engine.abc import ActorDescription
from skate.remote_function import check_arguments, check_options, positional_bounds, signature_of

__all__ = [
    "ActorClass",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorMethod",
    "ActorProxy",
    "exit_actor",
    "get_actor",
    "method",
]

if TYPE_CHECKING:
    from skate._base.generator import ObjectRefGenerator as ObjectRefGenerator
    from skate.exceptions import ActorAlreadyExistsError as ActorAlreadyExistsError
    from skate.exceptions import AsyncioActorExit as AsyncioActorExit
    from skate.util.scheduling_strategies import (
        PlacementGroupSchedulingStrategy as PlacementGroupSchedulingStrategy,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "ActorAlreadyExistsError": "skate.exceptions.ActorAlreadyExistsError",
            "AsyncioActorExit": "skate.exceptions.AsyncioActorExit",
            "ObjectRefGenerator": "skate._base.generator.ObjectRefGenerator",
            "PlacementGroupSchedulingStrategy": "skate.util.scheduling_strategies.PlacementGroupSchedulingStrategy",
        },
    )

T = TypeVar("T")

_PLAIN_OPTIONS = MethodOptions()
_SPECIAL = ("__ray_ready__", "__ray_call__", "__ray_terminate__")
_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


def method(*args: Any, **kwargs: Any) -> Any:
    """Give options to a method of an actor class.

    Args:
        num_returns: The number of references that a call returns.
        concurrency_group: The concurrency group of its calls.
        max_task_retries: How often a call is retried after the actor died.
        retry_exceptions: Whether, or on which exceptions, a call is retried.

    >>> import skate
    >>> @skate.remote
    ... class Pair:
    ...     @skate.method(num_returns=2)
    ...     def both(self):
    ...         return 1, 2
    >>> skate.get(Pair.remote().both.remote())
    [1, 2]
    """
    if len(args) == 1 and not kwargs and callable(args[0]):  # without parentheses
        return args[0]
    if args or not kwargs:
        allowed = ", ".join(MethodOptions.RULES)
        raise ValueError(
            f"Give @method options by keyword, as in @method(num_returns=2). It takes {allowed}."
        )
    options = MethodOptions.parse(kwargs)

    def annotate(function: Callable[..., Any]) -> Callable[..., Any]:
        check_num_returns(options.num_returns, is_generator=is_generator(function))
        function.__skate_method__ = options  # type: ignore[attr-defined]
        if options.concurrency_group is not None:
            function.__ray_concurrency_group__ = options.concurrency_group  # type: ignore[attr-defined]
        return function

    return annotate


def _methods_of(kind: type) -> dict[str, MethodInfo]:
    found = {}
    for name, function in inspect.getmembers(kind, _is_callable_member):
        plain = inspect.unwrap(function) if callable(function) else function
        static = isinstance(inspect.getattr_static(kind, name, None), (staticmethod, classmethod))
        options = getattr(function, "__skate_method__", _PLAIN_OPTIONS)
        info = found[name] = MethodInfo(
            name,
            options,
            _signature(function, static),
            generator=is_generator(plain),
            is_async=is_async(plain),
        )
        info.decorator = getattr(function, "__ray_invocation_decorator__", None)
    for name in (*_SPECIAL, *(() if "__init__" in found else ("__init__",))):
        found[name] = MethodInfo(name, _PLAIN_OPTIONS, _ANYTHING, generator=False, is_async=False)
    return found


def _is_callable_member(value: Any) -> bool:
    return inspect.isfunction(value) or inspect.ismethod(value) or _is_compiled(value)


def _is_compiled(value: Any) -> bool:
    return type(value).__name__ == "cython_function_or_method"


def _signature(function: Any, static: bool) -> inspect.Signature:
    signature = signature_of(function)
    if static or inspect.ismethod(function):
        return signature
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        parameters = parameters[1:]
    # Annotations may be values that cannot be pickled, and checking calls does not need them.
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    bare = [p if _simple(p.default) else p.replace(default=None) for p in bare]
    return inspect.Signature(bare)


def _simple(default: Any) -> bool:
    return default is inspect.Parameter.empty or isinstance(
        default, (int, float, str, bool, type(None), tuple)
    )


class ActorClassInheritanceException(TypeError):
    """A class inherits from an actor class."""


class ActorClassMetadata(NamedTuple):
    """The value of `__ray_metadata__` of an actor class."""

    class_name: str
    modified_class: type


class ActorClass(Generic[T]):
    """A class whose `.remote(…)` creates an actor: an instance in its own process."""

    def __init__(self, kind: type[T], options: ActorOptions) -> None:
        self._kind = kind
        self._options = options
        self.__ray_metadata__ = ActorClassMetadata(kind.__name__, kind)
        self.__ray_actor_class__ = kind
        self.__name__ = kind.__name__
        self.__qualname__ = kind.__qualname__
        self.__module__ = kind.__module__
        self.__doc__ = kind.__doc__
        self._template: ActorTemplate | None = None
        self._signature: inspect.Signature | None = None
        if options.allow_out_of_order_execution is False:
            _check_order(self._core)
        declared.add(self)

    @property
    def _core(self) -> ActorTemplate:
        if self._template is None:
            export = Export(self._kind, self._kind.__name__)
            self._template = ActorTemplate(export, self._options, _methods_of(self._kind))
        return self._template

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError: actors are created with `.remote(…)`."""
        raise TypeError(
            f"{self.__name__} is an actor class and cannot be instantiated directly. Create an actor with "
            f"{self.__name__}.remote(...)."
        )

    def __mro_entries__(self, bases: Any) -> NoReturn:
        raise ActorClassInheritanceException(
            f"Inheriting from actor classes is not currently supported. '{self.__name__}' is one: inherit from the "
            "plain class, and make the subclass an actor."
        )

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[Any]:
        """Create an actor; return its handle without waiting for the constructor."""
        return self._create(self._core, args, kwargs)

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> ActorHandle[Any]:
        return self.options(**options).remote(*(args or ()), **(kwargs or {}))

    def _create(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ActorHandle[Any]:
        if self._signature is None:
            self._signature = _signature(self._kind.__init__, False)
        check_arguments(self._signature, self.__name__, args, kwargs)
        options = template.options
        if options.name == "":
            raise ValueError("Actor name cannot be an empty string.")
        _check_namespace(options.namespace)
        check_options(self.__qualname__, options)
        engine = engines.current()
        created = engine.create_actor(template, args, kwargs)
        if not created.is_new and options.name is not None:
            return make_handle(*engine.find_actor(options.name, options.namespace))
        return make_handle(created.id, ActorDescription.of(template), created.keep, original=True)

    def options(self, **options: Any) -> _WithOptions:
        """Return the class with these options."""
        return _WithOptions(self, self._options.merged(options))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return a node of a lazy graph that creates an actor."""
        from skate.dag import ClassNode

        return ClassNode(self, args, kwargs, self._options.given())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kind = self.__dict__.get("_kind")
        if kind is not None and hasattr(kind, name):
            return getattr(kind, name)
        raise AttributeError(f"actor class {self.__dict__.get('__name__')!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        methods = [name for name in self._core.methods if not name.startswith("_")]
        return [*methods, "bind", "options", "remote"]

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorClass, (self._kind, self._options)

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"


def _check_order(template: ActorTemplate) -> None:
    """Raise ValueError if the options ask a concurrent actor to run its calls in order."""
    options = template.options
    if options.allow_out_of_order_execution is not False:
        return
    if (options.max_concurrency or 1) > 1 or options.concurrency_groups or template.is_async:
        raise ValueError(
            "If you're using async actors or concurrent actors, the max_concurrency of which is greater "
            "than 1, allow_out_of_order_execution cannot be False: calls run at the same time."
        )


class _WithOptions:
    """An actor class with the options of `.options(…)`."""

    def __init__(self, actor_class: ActorClass[Any], options: ActorOptions) -> None:
        self._class = actor_class
        self._options = options
        core = actor_class._core
        self._template = ActorTemplate(core.export, options, core.methods)
        _check_order(self._template)

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[Any]:
        """Create an actor; return its handle without waiting for the constructor."""
        return self._class._create(self._template, args, kwargs)

    def options(self, **options: Any) -> _WithOptions:
        """Return the class with more options."""
        return _WithOptions(self._class, self._options.merged(options))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return a node of a lazy graph that creates an actor."""
        from skate.dag import ClassNode

        return ClassNode(self._class, args, kwargs, self._options.given())


class ActorHandle(Generic[T]):
    """Refers to an actor; its methods have `.remote(…)`. The actor ends when no handle of it exists."""

    def __init__(
        self,
        actor: bytes,
        keep: object,
        methods: dict[str, MethodInfo],
        class_name: str,
        max_task_retries: int = 0,
        max_pending_calls: int = -1,
        unordered: bool = False,
        *,
        original: bool = False,
    ) -> None:
        self._ray_unordered = unordered
        self._ray_actor_id = ActorID(actor)
        self._ray_keep = keep
        self._ray_methods = methods
        self._ray_class_name = class_name
        self._ray_max_task_retries = max_task_retries
        self._ray_max_pending_calls = max_pending_calls
        self._ray_original_handle = original

    @property
    def _actor_id(self) -> ActorID:
        return self._ray_actor_id

    @property
    def _ray_weak_ref(self) -> bool:
        return self._ray_keep is None

    def __getattr__(self, name: str) -> ActorMethod:
        methods = self.__dict__.get("_ray_methods")
        if methods is None:
            raise AttributeError(name)
        info = methods.get(name)
        if info is None:
            raise AttributeError(
                f"'ActorHandle' object has no attribute '{name}': {self._ray_class_name} has no such method."
            )
        return ActorMethod(self, info, info.options)

    def __dir__(self) -> list[str]:
        return sorted(self._ray_methods)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._ray_actor_id == other._ray_actor_id

    def __hash__(self) -> int:
        return hash(self._ray_actor_id)

    def __repr__(self) -> str:
        return f"Actor({self._ray_class_name}, {self._ray_actor_id.hex()})"

    def _repr_html_(self) -> str:
        from skate._base.html_tables import facts_html  # only notebooks need it

        methods = ", ".join(sorted(name for name in self._ray_methods if not name.startswith("_")))
        id = self._ray_actor_id.hex()
        return facts_html("Actor", {"class": self._ray_class_name, "id": id, "methods": methods or None})

    def __reduce__(self) -> tuple[Any, ...]:
        keep = self._ray_keep
        engine = engines.running()
        carried = None if engine is None else engine.ship_actor(self._ray_actor_id.binary(), keep)
        return _revive, (
            self._ray_actor_id.binary(),
            self._ray_methods,
            self._ray_class_name,
            self._ray_max_task_retries,
            self._ray_max_pending_calls,
            self._ray_unordered,
            keep is None,
            carried,
        )


def _revive(
    actor: bytes,
    methods: dict[str, MethodInfo],
    class_name: str,
    retries: int,
    limit: int,
    unordered: bool,
    weak: bool,
    carried: object,
) -> ActorHandle[Any]:
    keep = engines.current().hold_actor(actor, carried, weak=weak)
    return ActorHandle(actor, keep, methods, class_name, retries, limit, unordered)


def make_handle(
    actor: bytes, description: ActorDescription, keep: object = None, *, original: bool = False
) -> ActorHandle[Any]:
    """Return a handle, which keeps the actor alive by `keep`."""
    return ActorHandle(
        actor,
        keep,
        description.methods,
        description.class_name,
        description.max_task_retries,
        description.max_pending_calls,
        description.is_unordered,
        original=original,
    )


class ActorMethod:
    """A method of an actor; `.remote(…)` calls it and returns a reference to the result."""

    __slots__ = ("_handle", "_info", "_options")

    def __init__(self, handle: ActorHandle[Any], info: MethodInfo, options: MethodOptions) -> None:
        self._handle = handle
        self._info = info
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError: methods are called with `.remote(…)`."""
        raise TypeError(
            f"The method {self._info.name} of an actor cannot be called directly. Submit the call with "
            f".{self._info.name}.remote(...), which returns a reference to its result."
        )

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Call the method; return a reference to its result."""
        info = self._info
        if info.decorator is not None:
            return info.decorator(self._call)(args, kwargs)  # type: ignore[no-any-return]
        return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: dict[str, Any]) -> ObjectRef[Any]:
        info = self._info
        args = tuple(args)
        signature = info.signature
        if signature is not None and signature is not _ANYTHING:
            plain = info.plain
            if plain is None:
                plain = info.plain = positional_bounds(signature)
            if kwargs or not plain[0] <= len(args) <= plain[1]:
                check_arguments(signature, info.name, args, kwargs)
        handle = self._handle
        options = self._options
        retries = options.max_task_retries
        return engines.current().call(  # type: ignore[return-value]  # num_returns can change it
            handle._ray_actor_id._id,
            info,
            options,
            args,
            kwargs,
            handle,
            retries=handle._ray_max_task_retries if retries is None else retries,
            limit=handle._ray_max_pending_calls,
            unordered=handle._ray_unordered,
        )

    def _remote(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        given = {key: value for key, value in options.items() if value is not None}
        return self.options(**given).remote(*(args or ()), **(kwargs or {}))

    def options(self, **options: Any) -> ActorMethod:
        """Return the method with these options."""
        merged = self._options.merged(options)
        check_num_returns(merged.num_returns, is_generator=self._info.is_generator)
        return ActorMethod(self._handle, self._info, merged)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Return a node of a lazy graph that calls the method."""
        from skate.dag import bind_actor_method

        return bind_actor_method(
            self._handle,
            self._info.name,
            args,
            kwargs,
            self._options.given(),
            num_returns=self._options.num_returns,
            signature=self._info.signature,
        )

    def __repr__(self) -> str:
        return f"ActorMethod({self._handle._ray_class_name}.{self._info.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorMethod, (self._handle, self._info, self._options)


ActorProxy = ActorHandle


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """Return a handle of the actor with this name; it does not keep the actor alive.

    Raises:
        ValueError: No living actor has this name in the namespace.
    """
    if not name:
        raise ValueError(f"get_actor() needs the name of an actor, got {name!r}.")
    if not isinstance(name, str):
        raise TypeError(f"The name of an actor is a string, got {name!r} ({type(name).__name__}).")
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace must be None or a string, not {type(namespace).__name__}")
    _check_namespace(namespace)
    return make_handle(*engines.current().find_actor(name, namespace))


def exit_actor() -> NoReturn:
    """End the calling actor after the current call; it is not restarted."""
    engines.current().exit_actor()
    raise AssertionError("exit_actor does not return")


def _check_namespace(namespace: str | None) -> None:
    if namespace == "":
        raise ValueError('A namespace cannot be "". Pass None for the namespace of the session.')
