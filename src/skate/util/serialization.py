"""Custom serializers for types that cannot be pickled."""

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
    """Use custom functions when this process serializes an instance of `cls`.

    The registration is local to this process: a task or actor that sends such objects must register them too.
    Deserialization needs no registration, because the deserializer is sent with the data. The registration may be made
    before `skate.init()`.

    Args:
        cls: The exact class, without subclasses.
        serializer: Function that converts an instance to a picklable value.
        deserializer: Function that converts the value back to an instance.

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
    """Remove the registered serializer of `cls` in this process.

    Args:
        cls: A class passed to `register_serializer`; any other class is ignored.
    """
    reducers.deregister(cls)


class StandaloneSerializationContext:
    """Register serializers with the methods of Ray's serialization contexts.

    The registrations are those of `register_serializer` and apply to this process.
    """

    def _register_cloudpickle_reducer(self, cls: type, reducer: Callable[[Any], tuple[Any, ...]]) -> None:
        """Use ``reducer(obj)``, a function and arguments that recreate the object, for instances of `cls`."""
        reducers.register(cls, serializer=reducer, deserializer=_reconstruct)

    def _unregister_cloudpickle_reducer(self, cls: type) -> None:
        """Remove the registration of `cls`."""
        reducers.deregister(cls)

    def _register_cloudpickle_serializer(
        self, cls: type, custom_serializer: Callable[[Any], Any], custom_deserializer: Callable[[Any], Any]
    ) -> None:
        """Use custom functions for instances of `cls`."""
        reducers.register(cls, serializer=custom_serializer, deserializer=custom_deserializer)


def _reconstruct(reduced: tuple[Any, ...]) -> Any:
    function, arguments, *_ = reduced
    return function(*arguments)
