"""Per-object state of decorated methods."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any


class MethodState:
    """Distinguishes calls of a function as a method, and stores state with the object that owns the method.

    Args:
        function: The undecorated function.
        decorator: The name of the decorator, for errors.
    """

    def __init__(self, function: Callable[..., Any], decorator: str) -> None:
        self._function = function
        self._decorator = decorator
        self._is_method_of: dict[type, bool] = {}
        self.key = f"_{decorator.rpartition('.')[2]} of {getattr(function, '__qualname__', function)}"

    def is_owner(self, value: Any) -> bool:
        """Return whether the function is a method of an object, so that the object is its `self` argument."""
        kind = type(value)
        found = self._is_method_of.get(kind)
        if found is None:
            found = self._is_method_of[kind] = _is_method_of(kind, self._function)
        return found

    def attributes_of(self, owner: Any) -> MutableMapping[str, Any]:
        """Return the mapping that stores state with an object, under `key`.

        Raises:
            TypeError: If the object cannot hold attributes.
        """
        try:
            attributes_of: MutableMapping[str, Any] = owner.__dict__
        except AttributeError:
            raise TypeError(
                f"{self._decorator} stores its state in the __dict__ of a {type(owner).__name__}, which has none: "
                "add '__dict__' to its __slots__."
            ) from None
        return attributes_of


def _is_method_of(kind: type, function: Callable[..., Any]) -> bool:
    """Return whether a function, possibly below other decorators, is an instance method of a class."""
    name = getattr(function, "__name__", "")
    class_name = getattr(function, "__qualname__", "").rpartition(".")[0]
    for cls in kind.__mro__:
        attribute = vars(cls).get(name)
        if isinstance(attribute, staticmethod | classmethod):
            continue
        if attribute is not None and cls.__qualname__ == class_name and cls.__module__ == function.__module__:
            return True  # defined in its body
        while attribute is not None:
            if attribute is function:
                return True
            attribute = getattr(attribute, "__wrapped__", None)
    return False
