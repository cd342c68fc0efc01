"""Check arguments against the annotations of their parameters.

The annotation defines the valid types, and a `Range` the valid numbers. A value of a wrong type raises an
`ArgumentTypeError`, a number out of range a `ValueError`; both name the parameter:

>>> @checked(limit=NON_NEGATIVE)
... def take(limit: int = 20, columns: str | list[str] | None = None) -> None: ...
>>> take("a")
Traceback (most recent call last):
skate.data._arguments.ArgumentTypeError: `limit` must be a non-negative integer, got 'a' (str).
>>> take(columns=["a", 3])
Traceback (most recent call last):
skate.data._arguments.ArgumentTypeError: `columns` must be a string, a list of strings or None, got ['a', 3] (list).
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import enum
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, ParamSpec, TypeVar

import numpy as np

from skate._api.argument_errors import message, shown
from skate._base.suggestions import closest

__all__ = [
    "ANY_NUMBER", "NON_NEGATIVE", "POSITIVE", "SHARE", "ArgumentTypeError", "Range", "check_attribute", "check_field",
    "check_fields", "check_options", "check_protocol", "check_type", "checked", "checked_methods", "message", "shown",
    "whole",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ArgumentTypeError(TypeError, ValueError):
    """Report an argument of a type that its parameter does not accept.

    It is also a `ValueError`, because that is what Ray raises for some parameters.
    """


@dataclasses.dataclass(frozen=True)
class Range:
    """Valid numbers of a parameter, from `least` to `most`.

    Attributes:
        least: The minimum.
        most: The maximum.
        adjective: Adjective for the numbers, such as "positive"; by default, messages show the bounds.
        strict: Whether the bounds are excluded.
    """

    least: float = -math.inf
    most: float = math.inf
    adjective: str = ""
    strict: bool = False

    def contains(self, number: Any) -> bool:
        """Return whether a number is in the range."""
        if self.strict:
            return bool(self.least < number < self.most)
        return bool(self.least <= number <= self.most)

    def describe(self, noun: str) -> str:
        """Return a phrase for a number in the range."""
        if self.adjective:
            return f"a {self.adjective} {noun}"
        if self.least == -math.inf and self.most == math.inf:
            return _with_article(noun)
        if self.most == math.inf:
            return f"{_with_article(noun)} of at least {self.least}"
        return f"{_with_article(noun)} between {self.least} and {self.most}"


ANY_NUMBER: Final = Range()
# Parameters with the same checks everywhere and errors like Ray's: see `_compute` and `_io.paths`.
_ELSEWHERE: Final = frozenset({"concurrency", "fn", "paths"})

POSITIVE: Final = Range(least=1, adjective="positive")
NON_NEGATIVE: Final = Range(least=0, adjective="non-negative")
SHARE: Final = Range(0, 1)


def checked(*elsewhere: str, **ranges: Range) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of each call before the function runs.

    Args:
        *elsewhere: Parameters to skip, because the function checks them, or accepts more than the annotation.
        **ranges: Valid numbers by parameter.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        checks = _Checks(function, _ELSEWHERE.union(elsewhere), ranges)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            checks.check_call(args, kwargs)
            return function(*args, **kwargs)

        return wrapper

    return decorate


def checked_methods(*elsewhere: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that checks the arguments of all public methods, as `checked` does."""

    def decorate(cls: type[T]) -> type[T]:
        for name, member in list(vars(cls).items()):
            if isinstance(member, types.FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(*elsewhere)(member))
        return cls

    return decorate


def check_fields(instance: Any, **ranges: Range) -> None:
    """Check the fields of a dataclass; for use in its `__post_init__`."""
    for field in dataclasses.fields(instance):
        check_field(type(instance), field.name, getattr(instance, field.name), ranges.get(field.name))


def check_field(owner: type, name: str, value: Any, numbers_allowed: Range | None = None) -> None:
    """Check one field of a class, or one key of a `TypedDict`, if the class declares it."""
    kind = _kind_of_field(owner, name, numbers_allowed or ANY_NUMBER)
    if kind is not None:
        kind.check(name, value)


def check_attribute(instance: Any, name: str, value: Any, numbers_allowed: Range | None = None) -> None:
    """Check an assignment to a field of a dataclass; for use in its `__setattr__`."""
    known = {field.name for field in dataclasses.fields(instance)}
    if name not in known and not hasattr(instance, name) and not name.startswith("_"):
        close = closest(name, known | set(vars(instance)), alike=0.8)
        if close is not None:
            raise AttributeError(
                f"{type(instance).__name__} has no setting {name!r}: did you mean {close!r}?"
            )
        # Programs for another version of Ray may set options that this one lacks.
        warnings.warn(f"{type(instance).__name__} has no setting {name!r}: it has no effect", stacklevel=3)
    check_field(type(instance), name, value, numbers_allowed)


def check_options(options: Mapping[str, Any], declared: type, **ranges: Range) -> None:
    """Check the values of options that a `TypedDict` declares; `_io.validation` reports unknown ones."""
    for name, value in options.items():
        check_field(declared, name, value, ranges.get(name))


def whole(name: str, value: Any, allowed: Range) -> int:
    """Return a number as an integer; whole floats such as 1e6 are accepted where Ray accepts them."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    _number(int, allowed).check(name, value)
    return int(value)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Raise an `ArgumentTypeError` unless a value is an instance of a class.

    Args:
        name: Name of the parameter.
        value: Its value.
        kind: The class, or a tuple of classes.
        words: The valid values, as a phrase: "a Dataset".
    """
    if not isinstance(value, kind):
        raise ArgumentTypeError(message(name, words, value))


def check_protocol(name: str, value: Any, method: str, words: str) -> None:
    """Raise an `ArgumentTypeError` unless an object of another library has the given method."""
    if isinstance(value, type) or not hasattr(value, method):
        raise ArgumentTypeError(message(name, words, value))


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A set of valid values.

    Attributes:
        words: Phrase that describes them: "a list of strings".
        is_typed: Return whether a value has a valid type.
        is_right: Return whether a value of a valid type is valid.
        plural: Phrase for several of them: "strings"; empty if any object is valid.
    """

    words: str
    is_typed: Callable[[Any], bool]
    is_right: Callable[[Any], bool] = lambda value: True
    plural: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raise an error that describes the valid values, unless the value is valid."""
        if not self.is_typed(value):
            raise ArgumentTypeError(message(name, self.words, value))
        if not self.is_right(value):
            raise ValueError(message(name, self.words, value))


class _Checks:
    """The checks of the parameters of a function, built from its annotations on the first call."""

    def __init__(
        self, function: Callable[..., Any], elsewhere: frozenset[str], ranges: Mapping[str, Range]
    ) -> None:
        self._function = function
        self._elsewhere = elsewhere
        self._ranges = ranges
        self._places: list[_Kind | None] = []
        self._place_names: list[str] = []
        self._rest: tuple[str, _Kind] | None = None  # of *args
        self._named: dict[str, _Kind] = {}
        self._made = False

    def check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise an error for the first invalid argument."""
        if not self._made:
            self._make()
        for place, value in enumerate(args):
            if place < len(self._places):
                kind = self._places[place]
                if kind is not None:
                    kind.check(self._place_names[place], value)
            elif self._rest is not None:
                self._rest[1].check(self._rest[0], value)
        for name, value in kwargs.items():
            if name in self._named:
                self._named[name].check(name, value)

    def _make(self) -> None:
        for parameter in inspect.signature(self._function).parameters.values():
            name = parameter.name
            kind = None if name in self._elsewhere else self._kind(parameter)
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = None if kind is None else (name, kind)
                continue
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self._places.append(kind)
                self._place_names.append(name)
            if kind is not None:
                self._named[name] = kind
        self._made = True

    def _kind(self, parameter: inspect.Parameter) -> _Kind | None:
        if parameter.annotation is parameter.empty or parameter.name.startswith("_"):
            return None
        allowed = self._ranges.get(parameter.name, ANY_NUMBER)
        return _kind_of(_resolve(parameter.annotation, self._function.__globals__), allowed)


@functools.cache
def _kind_of_field(owner: type, name: str, allowed: Range) -> _Kind | None:
    for each in owner.__mro__:
        annotations = inspect.get_annotations(each)
        if name in annotations:
            annotation = annotations[name]
            text = getattr(annotation, "__forward_arg__", annotation)  # a TypedDict keeps forward references
            return _kind_of(_resolve(text, vars(sys.modules[each.__module__])), allowed)
    return None


class _Public(dict[str, Any]):
    """The public names of `skate.data`, for annotations with names imported only for type checkers."""

    def __init__(self, defined: Mapping[str, Any]) -> None:
        super().__init__()
        self._defined = defined

    def __missing__(self, name: str) -> Any:
        if name in self._defined or hasattr(builtins, name):
            raise KeyError(name)
        return getattr(sys.modules["skate.data"], name)


def _resolve(annotation: Any, defined: dict[str, Any]) -> Any:
    """Return the type that an annotation refers to; `Any` if it is unknown at run time."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, defined, _Public(defined))
    except (AttributeError, NameError):
        return Any


def _kind_of(annotation: Any, allowed: Range) -> _Kind | None:
    """Return the values that an annotation allows; None for any object."""
    if annotation is Any:
        return None
    origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        return _union([_kind_of(each, allowed) for each in parameters])
    if origin is Literal:
        return _choice(parameters)
    if origin in _SEQUENCES or annotation in _SEQUENCES:
        return _sequence(origin or annotation, parameters, allowed)
    if origin in _MAPPINGS or annotation in _MAPPINGS:
        return _mapping(parameters, allowed)
    if origin is collections.abc.Callable or annotation is Callable:
        return _Kind("a function", callable, plural="functions")
    if annotation is None or annotation is type(None):
        return _Kind("None", lambda value: value is None)
    if annotation in (int, float):
        return _number(annotation, allowed)
    cls = origin or annotation
    if annotation in _PLAIN or cls in _PLAIN:
        return _PLAIN[cls]
    if isinstance(cls, type) and issubclass(cls, enum.Enum):
        return _member(cls)
    if isinstance(cls, type) and cls is not object and _has_instances(cls):
        return _Kind(
            _with_article(cls.__name__), lambda value: isinstance(value, cls), plural=f"{cls.__name__}s"
        )
    return None


def _has_instances(cls: type) -> bool:
    try:
        isinstance(None, cls)
    except TypeError:  # a TypedDict, or a protocol that is not checkable at run time
        return False
    return True


_SEQUENCES: Final = (
    list,
    tuple,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
_MAPPINGS: Final = (dict, collections.abc.Mapping)


def _is_bool(value: Any) -> bool:
    # Programs also pass 0 and 1, and None for False; text is an error, because "no" is truthy.
    return (
        value is None or isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1))
    )


_PLAIN: Final[dict[Any, _Kind]] = {
    str: _Kind("a string", lambda value: isinstance(value, str), plural="strings"),
    bytes: _Kind("bytes", lambda value: isinstance(value, bytes), plural="bytes"),
    bool: _Kind("True or False", _is_bool, plural="truth values"),
    type: _Kind("a class", lambda value: isinstance(value, type), plural="classes"),
    os.PathLike: _Kind("a path", lambda value: isinstance(value, os.PathLike), plural="paths"),
}


def _number(annotation: type, allowed: Range) -> _Kind:
    number, noun = (numbers.Integral, "integer") if annotation is int else (numbers.Real, "number")

    def is_typed(value: Any) -> bool:
        return isinstance(value, number) and not isinstance(value, (bool, np.bool_))

    def is_right(value: Any) -> bool:
        return value == value and allowed.contains(value)  # NaN is not a valid number

    return _Kind(allowed.describe(noun), is_typed, is_right, plural=f"{noun}s")


def _choice(choices: tuple[Any, ...]) -> _Kind:
    words = _alternatives([repr(each) for each in choices])
    types_of = tuple({type(each) for each in choices})
    return _Kind(words, lambda value: isinstance(value, types_of), lambda value: value in choices)


def _member(cls: type[enum.Enum]) -> _Kind:
    values = tuple(each.value for each in cls)
    words = f"{_with_article(cls.__name__)}: {_alternatives([repr(each) for each in values])}"
    return _Kind(words, lambda value: isinstance(value, (cls, str)), lambda value: value in (*cls, *values))


def _sequence(origin: Any, parameters: tuple[Any, ...], allowed: Range) -> _Kind:
    if origin is tuple and len({*parameters} - {...}) > 1:
        return _record(parameters, allowed)
    noun = {tuple: "tuple", collections.abc.Iterable: "iterable"}.get(origin, "list")
    length = len(parameters) if origin is tuple and parameters and parameters[-1] is not ... else None
    each = _kind_of(parameters[0], allowed) if parameters else None

    def is_typed(value: Any) -> bool:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            return False
        # An iterator can be consumed only once, by the function.
        return each is None or isinstance(value, Iterator) or all(map(each.is_typed, value))

    def is_right(value: Any) -> bool:
        if length is not None and len(value) != length:
            return False
        return each is None or isinstance(value, Iterator) or all(map(each.is_right, value))

    words = _with_article(noun)
    if each is not None and each.plural:
        count = {None: "", 2: "two "}.get(length, f"{length} ")
        described = each.plural
        if allowed.adjective:
            described = f"{allowed.adjective} {described}"
        elif math.isfinite(allowed.most):
            described = f"{described} between {allowed.least} and {allowed.most}"
        words = f"{words} of {count}{described}"
    return _Kind(words, is_typed, is_right, plural=f"{noun}s")


def _record(parameters: tuple[Any, ...], allowed: Range) -> _Kind:
    """Return the kind of tuples whose elements have different types."""
    kinds = [_kind_of(each, allowed) for each in parameters]

    def is_typed(value: Any) -> bool:
        return (
            isinstance(value, (tuple, list))
            and len(value) == len(kinds)
            and all(kind is None or kind.is_typed(each) for kind, each in zip(kinds, value, strict=True))
        )

    def is_right(value: Any) -> bool:
        return all(kind is None or kind.is_right(each) for kind, each in zip(kinds, value, strict=True))

    elements = ", ".join("any object" if kind is None else kind.words for kind in kinds)
    return _Kind(f"a tuple of {elements}", is_typed, is_right, plural="tuples")


def _mapping(parameters: tuple[Any, ...], allowed: Range) -> _Kind:
    kinds = [_kind_of(each, allowed) for each in parameters] or [None, None]
    key, item = kinds

    def is_typed(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        if key is not None and not all(map(key.is_typed, value)):
            return False
        return item is None or all(map(item.is_typed, value.values()))

    def is_right(value: Any) -> bool:
        return item is None or all(map(item.is_right, value.values()))

    words = "a dict"
    if key is not None and key.plural:
        words = f"a dict with {key.plural} as keys"
        if item is not None and item.plural:
            values = f"{allowed.adjective} {item.plural}".strip()
            words = f"{words} and {values} as values"
    return _Kind(words, is_typed, is_right, plural="dicts")


def _union(kinds: list[_Kind | None]) -> _Kind | None:
    known = [each for each in kinds if each is not None]
    if len(known) < len(kinds):
        return None  # one of them allows any object
    words = list(dict.fromkeys(each.words for each in known))
    if words[0] == "True or False":
        words[:1] = ["True", "False"]
    plurals = list(dict.fromkeys(each.plural for each in known if each.plural))
    if "a number" in words and "an integer" in words:
        words.remove("an integer")

    def is_typed(value: Any) -> bool:
        return any(each.is_typed(value) for each in known)

    def is_right(value: Any) -> bool:
        return any(each.is_typed(value) and each.is_right(value) for each in known)

    return _Kind(_alternatives(words), is_typed, is_right, plural=_alternatives(plurals))


def _alternatives(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else ""


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiouAEIO" else f"a {noun}"
