"""The arguments that a preprocessor is made with: readable, printed, and saved with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

_REQUIRED: Any = object()


class Option(Generic[T]):
    """An argument of a preprocessor, kept in the attribute of the same name with an underscore.

    An instance without the attribute, as an older version has saved it, has the default.

    Args:
        default: The value if none is kept.
        like: The option whose value is the default.
        make: Returns the default, where it is something that can be changed.
        shown: Whether it is a part of the preprocessor's text.

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
        raise AttributeError(f"{owner.__name__} was made without {self._name!r}, which it needs")

    def __set__(self, instance: object, value: T) -> None:
        raise AttributeError(
            f"{self._name!r} of {type(instance).__name__} cannot be changed: make another one with"
            f" {self._name}={value!r}"
        )


def options_of(cls: type) -> dict[str, Option[Any]]:
    """Return the options of a class by name, in the order in which it declares them."""
    found: dict[str, Option[Any]] = {}
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if isinstance(value, Option):
                found.pop(name, None)  # one that a subclass declares again stands where it does so
                found[name] = value
    return found


def described(instance: object) -> str:
    """Return the text of an instance: its class and its options."""
    parts = [
        f"{name}={_text(getattr(instance, name))}"
        for name, option in options_of(type(instance)).items()
        if option.shown
    ]
    return f"{type(instance).__name__}({', '.join(parts)})"


def _text(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value) if callable(value) else repr(value)


def restored(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an instance with options under the names that they are kept by.

    States from before options were private have them under their own names.
    """
    names = options_of(cls)
    return {f"_{name}" if name in names else name: value for name, value in state.items()}


def matching_outputs(columns: list[str], output_columns: list[str] | None) -> list[str]:
    """Return the columns to write to: the given ones, or those that are read.

    Raises:
        ValueError: There are more or fewer of them than columns to read.
    """
    if output_columns is None:
        return columns
    if len(columns) != len(output_columns):
        raise ValueError(
            "The length of columns and output_columns must match. There are"
            f" {len(columns)} columns, {columns}, and {len(output_columns)} output_columns, {output_columns}."
        )
    return output_columns
