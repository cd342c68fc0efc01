"""The names under which classes of preprocessors are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["SerializablePreprocessor", "UnknownPreprocessorError"]

Class = TypeVar("Class", bound=type)

# Those that come with Skate have Ray's names, "io.ray.preprocessors.…": what Ray has saved can be loaded here.
_classes: dict[str, type] = {}


class UnknownPreprocessorError(ValueError):
    """What is loaded was saved by a class that is not known here.

    Attributes:
        preprocessor_type: The name that it was saved under.
    """

    def __init__(self, preprocessor_type: str) -> None:
        super().__init__(
            f"Unknown preprocessor type: {preprocessor_type}. Import the module that defines it before you load it."
        )
        self.preprocessor_type = preprocessor_type

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preprocessor_type,)


def SerializablePreprocessor(version: int, identifier: str) -> Callable[[Class], Class]:  # noqa: N802  # Ray's name
    """Let instances of a class be saved under a name that stays, wherever the class moves.

    Args:
        version: The version of what the class saves; it is given back when an instance is loaded.
        identifier: The name.

    Raises:
        ValueError: Another class has the name already.

    >>> from skate.data.preprocessor import SerializablePreprocessorBase
    >>> @SerializablePreprocessor(version=1, identifier="example.upper_case")
    ... class UpperCase(SerializablePreprocessorBase):
    ...     _is_fittable = False
    >>> UpperCase.get_preprocessor_class_id()
    'example.upper_case'
    """

    def register(cls: Class) -> Class:
        taken = _classes.get(identifier)
        # A class that is defined again, as in a notebook, takes the place of the one before.
        if taken is not None and taken.__qualname__ != cls.__qualname__:
            raise ValueError(f"{identifier!r} is the name of {taken.__qualname__}: choose another one")
        _classes[identifier] = cls
        cls.set_version(version)  # type: ignore[attr-defined]  # of SerializablePreprocessorBase
        cls.set_preprocessor_class_id(identifier)  # type: ignore[attr-defined]
        return cls

    return register


def class_named(identifier: str) -> type:
    """Return the class that saves under a name.

    Raises:
        UnknownPreprocessorError: There is none.
    """
    if identifier not in _classes:
        # Those that come with Skate are registered when they are imported.
        from skate.data import preprocessors  # noqa: F401
    try:
        return _classes[identifier]
    except KeyError:
        raise UnknownPreprocessorError(identifier) from None
