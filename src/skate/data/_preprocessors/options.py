"""Constructor arguments of preprocessors: read-only attributes that are printed and saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

_REQUIRED: Any = object()


class Option(Generic[T]):
    """An argument of a preprocessor, stored in the attribute of the same name with an underscore.

    An instance without the attribute, saved by an older version, uses the default.

    Args:
        default: The value if none is stored.
        like: Name of the option whose value is the default.
        make: Function that returns the default, for mutable values.
        shown: Whether the repr of the preprocessor includes it.

    >>> class Cut:
    ...     columns = Option[list[str]]()
    ...     output_columns = Option[list[str]](like="columns")
    >>> cut = Cut()
    >>> cut._columns = ["a"]
    >>> cut.output_columns
    ['a']
    """

    def __init__(
        self,
        default: T = _REQUIRED,
        *,
        like: str | None = None,
        make: Callable[[], T] | None = None,
        shown: bool = True,
    ) -> None:
        self._default = default
        self._like = like
        self._make = make
        self.shown = shown

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> Option[T] | T:
        if instance is None:
            return self
        kept = vars(instance).get(f"_{self._name}", _REQUIRED)
        if kept is not _REQUIRED:
            return kept  # type: ignore[no-any-return]  # what the constructor has put there
        if self._like is not None:
            return getattr(instance, self._like)  # type: ignore[no-any-return]  # another option
        if self._make is not None:
            return self._make()
        if self._default is not _REQUIRED:
            return self._default
        raise AttributeError(f"{owner.__name__} was created without {self._name!r}, which it needs")

    def __set__(self, instance: object, value: T) -> None:
        raise AttributeError(
            f"{self._name!r} of {type(instance).__name__} cannot be changed: create another one with"
            f" {self._name}={value!r}"
        )


def options_of(cls: type) -> dict[str, Option[Any]]:
    """Return the options of a class by name, in the order of declaration."""
    found: dict[str, Option[Any]] = {}
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if isinstance(value, Option):
                found.pop(name, None)  # a subclass that declares it again determines its position
                found[name] = value
    return found


def describe(instance: object) -> str:
    """Return the repr of an instance: its class and its options."""
    parts = [
        f"{name}={_text(getattr(instance, name))}"
        for name, option in options_of(type(instance)).items()
        if option.shown
    ]
    return f"{type(instance).__name__}({', '.join(parts)})"


def _text(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value) if callable(value) else repr(value)


def restore_state(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an instance with options under their private names.

    Older states hold options under their public names.
    """
    names = options_of(cls)
    return {f"_{name}" if name in names else name: value for name, value in state.items()}


def resolve_outputs(columns: list[str], output_columns: list[str] | None) -> list[str]:
    """Return the columns to write to: the given ones, or the input columns.

    Raises:
        ValueError: The number of output columns differs from the number of input columns.
    """
    if output_columns is None:
        return columns
    if len(columns) != len(output_columns):
        raise ValueError(
            f"The length of columns and output_columns must match: columns is {columns}, and output_columns is "
            f"{output_columns}."
        )
    return output_columns
