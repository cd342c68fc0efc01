"""Functions and classes on their way to workers: pickled once, named by their content."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from skate._base.options import ActorOptions, TaskOptions

# Every remote function and actor class of this process: what a program is made of, before it has run.
declared: WeakSet[Any] = WeakSet()

CODE_LIMIT = 95 << 20  # bytes: what is larger has captured data that belongs in an object


class Export:
    """A function or class with its pickled code, made at first need.

    The key is a hash of the code, so that the same function exported twice is one function.
    """

    __slots__ = ("_code", "_key", "_references", "module", "name", "qualname", "submission_cache", "target")

    def __init__(self, target: Any, name: str | None = None) -> None:
        self.target = target
        self.module = getattr(target, "__module__", "") or ""
        self.qualname = getattr(target, "__qualname__", "") or type(target).__qualname__
        self.name = name or getattr(target, "__name__", "") or type(target).__name__
        self._code: bytes | None = None
        self._key: bytes | None = None
        self.submission_cache: Any = None  # an engine's cache
        self._references: list[Any] = []  # that the code refers to: their objects live as long as it does

    @property
    def code(self) -> bytes:
        """The pickled function or class."""
        if self._code is None:
            self._code, self._references = pickle_code(self.target, self.name)
        return self._code

    @property
    def key(self) -> bytes:
        """The hash of the code."""
        if self._key is None:
            self._key = _blake2b()(self.code, digest_size=20).digest()
        return self._key


def _blake2b() -> Callable[..., Any]:
    """Return hashlib's blake2b without hashlib, which loads OpenSSL: a twentieth of the way to a first task."""
    try:
        from _blake2 import blake2b
    except ImportError:  # the module is CPython's own
        from hashlib import blake2b
    return blake2b


def pickle_code(target: Any, name: str) -> tuple[bytes, list[Any]]:
    """Pickle a function or class, and return the references in it; say which part cannot be pickled."""
    from skate._base.serialization import serialize

    try:
        payload = serialize(target)
        code = payload.to_bytes()
    except Exception as error:
        raise TypeError(explain(target, f"the remote function or class {name}", error)) from error
    if len(code) > CODE_LIMIT:
        what = "actor" if inspect.isclass(target) else "remote function"
        raise ValueError(
            f"The {what} {name} is too large: its pickled code has {len(code) >> 20} MiB, and {CODE_LIMIT >> 20} MiB "
            "are allowed. It probably refers to a large global or enclosing variable: store that value with put(), and "
            "pass the reference as an argument."
        )
    for reference in payload.references:
        owner = reference._engine
        if owner is not None:
            owner.promote(reference)
    return code, payload.references


def explain(value: Any, what: str, error: BaseException) -> str:
    """Say which part of `value` cannot be pickled."""
    from skate._base.pickle_trace import unserializable_path

    path = unserializable_path(value)
    where = f" The culprit is {path}." if path else ""
    return (
        f"Could not serialize {what}: {error}.{where} skate.util.inspect_serializability(value) shows more; "
        "skate.util.register_serializer teaches Skate to pickle a class that cannot be pickled as it is."
    )


class TaskFunction:
    """A remote function with its options, as engines get it; `submission_cache` is an engine's cache."""

    __slots__ = ("export", "is_generator", "options", "submission_cache")

    def __init__(self, export: Export, options: TaskOptions) -> None:
        self.export = export
        self.options = options
        self.is_generator = is_generator(export.target)
        self.submission_cache: Any = None


class MethodInfo:
    """What callers have to know of an actor's method."""

    __slots__ = (
        "decorator",
        "is_async",
        "is_generator",
        "name",
        "options",
        "plain",
        "signature",
        "submission_cache",
    )

    def __init__(
        self, name: str, options: Any, signature: inspect.Signature | None, *, generator: bool, is_async: bool
    ) -> None:
        self.name = name
        self.options = options
        self.signature = signature
        self.is_generator = generator
        self.is_async = is_async
        self.submission_cache: Any = None  # an engine's cache
        self.decorator: Any = None  # wraps the sending of a call, where the user asked for it
        self.plain: tuple[int, int] | None = None  # least and most positional arguments, once known

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.name, self.options, self.signature, self.is_generator, self.is_async, self.decorator)
        return _method_info, fields


def _method_info(
    name: str,
    options: Any,
    signature: inspect.Signature | None,
    generator: bool,
    is_async: bool,
    decorator: Any,
) -> MethodInfo:
    info = MethodInfo(name, options, signature, generator=generator, is_async=is_async)
    info.decorator = decorator
    return info


class ActorTemplate:
    """An actor class with its options, as engines get it; `submission_cache` is an engine's cache."""

    __slots__ = ("export", "is_async", "methods", "options", "submission_cache")

    def __init__(self, export: Export, options: ActorOptions, methods: dict[str, MethodInfo]) -> None:
        self.export = export
        self.options = options
        self.methods = methods
        self.is_async = any(method.is_async for method in methods.values())
        self.submission_cache: Any = None

    @property
    def is_unordered(self) -> bool:
        """Whether calls may overtake one whose arguments are not there: they run at once anyway."""
        options = self.options
        concurrent = (options.max_concurrency or 1) > 1 or bool(options.concurrency_groups) or self.is_async
        given = options.allow_out_of_order_execution
        return concurrent if given is None else given


def is_generator(function: Callable[..., Any]) -> bool:
    """Return whether calling the function gives a generator."""
    plain = inspect.unwrap(function)
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling the function gives a coroutine or an asynchronous generator."""
    plain = inspect.unwrap(function)
    return inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
