"""What a decorated function keeps for each object that it is a method of."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any


class MethodState:
    """Tells the objects that pass themselves to a function from its other arguments.

    Args:
        function: The function, as it was written.
        decorator: What decorates it, for errors.
    """

    def __init__(self, function: Callable[..., Any], decorator: str) -> None:
        self._function = function
        self._decorator = decorator
        self._is_method_of: dict[type, bool] = {}
        self.key = f"_{decorator.rpartition('.')[2]} of {getattr(function, '__qualname__', function)}"

    def is_owner(self, value: Any) -> bool:
        """Tell whether the function is a method of an object, which as its first argument is then `self`."""
        kind = type(value)
        found = self._is_method_of.get(kind)
        if found is None:
            found = self._is_method_of[kind] = _is_method_of(kind, self._function)
        return found

    def attributes_of(self, owner: Any) -> MutableMapping[str, Any]:
        """Return where to keep something with an object, under `key`.

        Raises:
            TypeError: If there is no room in the object.
        """
        try:
            attributes_of: MutableMapping[str, Any] = owner.__dict__
        except AttributeError:
            raise TypeError(
                f"{self._decorator} keeps what belongs to a {type(owner).__name__} in its __dict__, and it has none: "
                "add '__dict__' to its __slots__."
            ) from None
        return attributes_of


def _is_method_of(kind: type, function: Callable[..., Any]) -> bool:
    """Tell whether instances of a class pass themselves to a function, which may be below other decorators."""
    name = getattr(function, "__name__", "")
    class_name = getattr(function, "__qualname__", "").rpartition(".")[0]
    for cls in kind.__mro__:
        attribute = vars(cls).get(name)
        if isinstance(attribute, staticmethod | classmethod):
            continue
        if attribute is not None and cls.__qualname__ == class_name and cls.__module__ == function.__module__:
            return True  # written in its body
        while attribute is not None:
            if attribute is function:
                return True
            attribute = getattr(attribute, "__wrapped__", None)
    return False
