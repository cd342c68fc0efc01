"""The module `ray`: its contents are Skate's, with the name and version of Ray's API."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from skate._base.alias import adoption, missing, names

_SKATE = importlib.import_module(names.SKATE).__dict__
_NOTHING = object()


class RayModule(ModuleType):
    """A module that gets, sets and deletes its attributes in another module.

    It is separate because its name and its version differ from Skate's.
    """

    def __init__(self, skate: ModuleType) -> None:
        super().__init__(names.RAY, f"Ray's API, offered by Skate.\n\n{skate.__doc__}")
        own = self.__dict__
        own["_skate"] = skate
        own["__package__"] = names.RAY
        own["__file__"] = skate.__file__
        own["__path__"] = list(skate.__path__)
        own["__version__"] = importlib.import_module(names.VERSIONS).ray_version
        own["__commit__"] = names.SKATE
        own["__spec__"] = ModuleSpec(names.RAY, None, origin=skate.__file__, is_package=True)

    def __getattribute__(self, name: str) -> Any:
        # The fast path of `ray.get` and similar names; `__getattr__` takes six times as long.
        if name[:1] != "_":
            value = _SKATE.get(name, _NOTHING)
            if value is not _NOTHING and (
                not isinstance(value, ModuleType) or isinstance(value, adoption.Adopted)
            ):
                return value
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._skate, name)
        except AttributeError:
            value = _NOTHING
        if value is not _NOTHING and not _is_hidden(value):
            if isinstance(value, ModuleType):
                adoption.adopt(value)
            return value
        if adoption.is_dunder(name):
            raise AttributeError(f"module {names.RAY!r} has no attribute {name!r}")
        child = adoption.child_of(names.RAY, name)
        if child is None:
            raise missing.missing_attribute(self._skate, names.RAY, name, sys._getframe(1))
        return child

    def __setattr__(self, name: str, value: Any) -> None:
        # importlib's LazyLoader replaces the class of a module until its first use.
        if name in self.__dict__ or name == "__class__":
            super().__setattr__(name, value)
        elif isinstance(value, ModuleType) and value.__name__ == names.target_of(f"{names.RAY}.{name}"):
            adoption.adopt(value)  # importlib binds a submodule, which __getattr__ finds
        else:
            setattr(self._skate, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._skate, name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self._skate)} - {"_skate"})

    def __repr__(self) -> str:
        return f"<module 'ray' (Skate) from {self.__file__!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return revive, ()


def _is_hidden(value: object) -> bool:
    """Return whether a value is a module of Skate that has no counterpart in Ray."""
    if not isinstance(value, ModuleType) or value.__name__.partition(".")[0] != names.SKATE:
        return False
    return names.alias_of(value.__name__) is None


def revive() -> ModuleType:
    """Return the module `ray` of this process and install the alias; used to unpickle it."""
    importlib.import_module(f"{__package__}.switch").install()
    return ray


ray = RayModule(importlib.import_module(names.SKATE))
