"""Registry of the names under which preprocessor classes are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["SerializablePreprocessor", "UnknownPreprocessorError"]

Class = TypeVar("Class", bound=type)

# Skate's own classes have Ray's names, "io.ray.preprocessors.…", so that Skate can load what Ray saved.
_classes: dict[str, type] = {}


class UnknownPreprocessorError(ValueError):
    """The class of a saved preprocessor is not registered.

    Attributes:
        preprocessor_type: The name under which it was saved.
    """

    def __init__(self, preprocessor_type: str) -> None:
        super().__init__(
            f"Unknown preprocessor type: {preprocessor_type}. Import the module that defines it before you load it."
        )
        self.preprocessor_type = preprocessor_type

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preprocessor_type,)


def SerializablePreprocessor(version: int, identifier: str) -> Callable[[Class], Class]:  # noqa: N802  # Ray's name
    """Register a class under a name that stays the same wherever the class moves.

    Args:
        version: Version of the saved state; it is passed back when an instance is loaded.
        identifier: The name.

    Raises:
        ValueError: The name belongs to another class.

    >>> from skate.data.preprocessor import SerializablePreprocessorBase
    >>> @SerializablePreprocessor(version=1, identifier="example.upper_case")
    ... class UpperCase(SerializablePreprocessorBase):
    ...     _is_fittable = False
    >>> UpperCase.get_preprocessor_class_id()
    'example.upper_case'
    """

    def register(cls: Class) -> Class:
        taken = _classes.get(identifier)
        # A class that is defined again, as in a notebook, replaces the previous one.
        if taken is not None and taken.__qualname__ != cls.__qualname__:
            raise ValueError(f"{identifier!r} is already the name of {taken.__qualname__}: use another one")
        _classes[identifier] = cls
        cls.set_version(version)  # type: ignore[attr-defined]  # of SerializablePreprocessorBase
        cls.set_preprocessor_class_id(identifier)  # type: ignore[attr-defined]
        return cls

    return register


def get_class(identifier: str) -> type:
    """Return the class that is registered under a name.

    Raises:
        UnknownPreprocessorError: The name is not registered.
    """
    if identifier not in _classes:
        # Importing Skate's own preprocessors registers them.
        from skate.data import preprocessors  # noqa: F401
    try:
        return _classes[identifier]
    except KeyError:
        raise UnknownPreprocessorError(identifier) from None
