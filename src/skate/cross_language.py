"""Functions and actor classes of other languages, which raise errors: Skate runs Python only."""

from __future__ import annotations

import enum
from typing import NoReturn

from skate.exceptions import CrossLanguageError

__all__ = ["Language", "cpp_actor_class", "cpp_function", "java_actor_class", "java_function"]


class Language(enum.Enum):
    """The languages that Ray's workers are written in."""

    PYTHON = 0
    JAVA = 1
    CPP = 2


def java_function(class_name: str, function_name: str) -> NoReturn:
    """Refuse to name a Java function.

    Raises:
        CrossLanguageError: Always: workers run Python only.
    """
    _refuse(Language.JAVA, f"the function {class_name}.{function_name}")


def java_actor_class(class_name: str) -> NoReturn:
    """Refuse to name a Java class.

    Raises:
        CrossLanguageError: Always: workers run Python only.
    """
    _refuse(Language.JAVA, f"the class {class_name}")


def cpp_function(function_name: str) -> NoReturn:
    """Refuse to name a C++ function.

    Raises:
        CrossLanguageError: Always: workers run Python only.
    """
    _refuse(Language.CPP, f"the function {function_name}")


def cpp_actor_class(create_function_name: str, class_name: str) -> NoReturn:
    """Refuse to name a C++ class.

    Raises:
        CrossLanguageError: Always: workers run Python only.
    """
    _refuse(Language.CPP, f"the class {class_name}, made by {create_function_name}")


def _refuse(language: Language, what: str) -> NoReturn:
    raise CrossLanguageError(
        f"Skate runs Python only, on every engine, and cannot run {what} ({language.name}). Call it through a "
        "Python binding, or run the program with Ray itself."
    )
