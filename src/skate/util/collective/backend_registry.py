"""Registry of custom backends of collective operations."""

from __future__ import annotations

from skate.util.collective.collective_group.base_collective_group import BaseGroup
from skate.util.collective.types import Backend

__all__ = ["custom_backend", "register_collective_backend"]

_custom: dict[str, type[BaseGroup]] = {}


def register_collective_backend(name: str, group_cls: type[BaseGroup]) -> None:
    """Register a backend under a name, for `init_collective_group` and `create_collective_group`.

    The registration is local to this process: the driver and every member must make it. Repeating it has no effect.

    Args:
        name: Name of the backend, which also becomes an attribute of `Backend`; case is ignored.
        group_cls: The class of the members of groups. Its arguments are the world size, the rank and the name of the
            group.

    Raises:
        TypeError: `group_cls` is not a subclass of BaseGroup.
        ValueError: Another backend has this name.
    """
    if not (isinstance(group_cls, type) and issubclass(group_cls, BaseGroup)):
        raise TypeError(f"{group_cls} is not a subclass of BaseGroup")
    upper = name.upper()
    known = _custom.get(upper)
    if known is not None and _path(known) == _path(group_cls):
        _custom[upper] = group_cls  # a class that is sent to this process twice becomes two classes
        return
    if upper in Backend._known or hasattr(Backend, upper):
        raise ValueError(
            f"Backend {upper} already registered; use another name for {group_cls.__qualname__}."
        )
    _custom[upper] = group_cls
    Backend._known[upper] = upper
    setattr(Backend, upper, upper)


def _path(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def custom_backend(backend: Backend) -> type[BaseGroup] | None:
    """Return the class that is registered for a backend; None for torch's own."""
    return _custom.get(backend)
