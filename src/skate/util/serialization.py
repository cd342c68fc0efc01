"""Custom serializers for types that cannot be pickled as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base import reducers

__all__ = ["StandaloneSerializationContext", "deregister_serializer", "register_serializer"]


def register_serializer(
    cls: type,
    *,
    serializer: Callable[[Any], Any],
    deserializer: Callable[[Any], Any],
) -> None:
    """Use the given functions whenever this process sends an instance of `cls`.

    The registration is local to this process: a task or actor that sends such objects
    itself must register them too. Reading needs no registration, since the deserializer
    travels with the data. It may be made before `skate.init()`.

    Args:
        cls: The exact class; subclasses are not covered.
        serializer: Turns an instance into something that pickles.
        deserializer: Turns that back into an instance.

    Raises:
        TypeError: If `cls` is not a class, or either function is not callable.

    Example:
        >>> import threading
        >>> class Account:
        ...     def __init__(self, balance):
        ...         self.balance, self.lock = balance, threading.Lock()
        >>> register_serializer(Account, serializer=lambda a: a.balance, deserializer=Account)
        >>> deregister_serializer(Account)
    """
    reducers.register(cls, serializer=serializer, deserializer=deserializer)


def deregister_serializer(cls: type) -> None:
    """Stop using the registered serializer of `cls` in this process.

    Args:
        cls: A class given to `register_serializer`; any other is ignored.
    """
    reducers.deregister(cls)


class StandaloneSerializationContext:
    """Registers serializers through the methods that Ray's serialization contexts have.

    The registrations are those of `register_serializer`: they hold for this process.
    """

    def _register_cloudpickle_reducer(self, cls: type, reducer: Callable[[Any], tuple[Any, ...]]) -> None:
        """Use ``reducer(obj)``, the function and arguments that make the object again, for instances of `cls`."""
        reducers.register(cls, serializer=reducer, deserializer=_made)

    def _unregister_cloudpickle_reducer(self, cls: type) -> None:
        """Stop using what is registered for `cls`."""
        reducers.deregister(cls)

    def _register_cloudpickle_serializer(
        self, cls: type, custom_serializer: Callable[[Any], Any], custom_deserializer: Callable[[Any], Any]
    ) -> None:
        """Use the given functions for instances of `cls`."""
        reducers.register(cls, serializer=custom_serializer, deserializer=custom_deserializer)


def _made(reduced: tuple[Any, ...]) -> Any:
    function, arguments, *_ = reduced
    return function(*arguments)
