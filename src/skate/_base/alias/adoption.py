"""Modules of Skate that are imported under Ray's names while the alias is installed.

An adopted module gets a different class meanwhile, so that errors for missing names use the name that the user
imported, and its submodules are attributes, imported or not.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

from skate._base.alias import missing, names, real

_is_on = threading.Event()
_adopted: dict[str, tuple[ModuleType, type[ModuleType]]] = {}  # with the class it had before
_classes: dict[type[ModuleType], type[ModuleType]] = {}


def reach(alias: str) -> ModuleType:
    """Import the module of Skate for a name of Ray other than `ray` itself; otherwise that of a library of Ray.

    Raises:
        ModuleNotFoundError: There is none. The error uses the user's name for it.
    """
    target = names.target_of(alias)
    if target is None:
        raise missing.missing_module(alias)
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # it exists, but an import inside it failed
        theirs = real.library(alias)
        if theirs is not None:
            return theirs
        raise missing.missing_module(names.alias_of(error.name) or alias) from None
    adopt(module)
    return module


def child_of(alias: str, name: str) -> ModuleType | None:
    """Return a module's submodule, importing it if necessary; None if it does not exist."""
    target = names.target_of(f"{alias}.{name}")
    if target is None:
        return None
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # it exists, but an import inside it failed
        return real.library(f"{alias}.{name}")
    adopt(module)
    return module


def is_dunder(name: str) -> bool:
    """Return whether a name is special to Python, which needs no explanation when it is missing."""
    return name.startswith("__") and name.endswith("__")


class Adopted(ModuleType):
    """The added part of an adopted module's class; the rest is its original class."""

    def __getattr__(self, name: str) -> Any:
        alias = names.alias_of(self.__name__)
        if alias is None or is_dunder(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        child = child_of(alias, name)
        if child is None:
            raise missing.missing_attribute(self, alias, name, sys._getframe(1))
        return child

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            alias = names.alias_of(self.__name__)
            target = alias and names.target_of(f"{alias}.{name}")
            if value.__name__ == target:  # importlib binds a submodule to its package
                adopt(value)
                if target != f"{self.__name__}.{name}":
                    return  # it belongs to another package of Skate, and __getattr__ finds it
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_adopted, (self.__name__,)  # pickle identifies modules by their exact class


def import_adopted(name: str) -> ModuleType:
    """Return a module of Skate; used to unpickle an adopted one."""
    return importlib.import_module(name)


def adopt(module: ModuleType) -> None:
    """Adopt a module and its loaded submodules.

    Submodules that are loaded later are adopted when importlib binds them to the module.
    """
    if module.__name__ in _adopted or not _is_on.is_set():
        return
    prefix = f"{module.__name__}."
    for each in (module, *(m for name, m in list(sys.modules.items()) if name.startswith(prefix))):
        # The top is not adopted: `ray` is a separate module, and `skate` stays unchanged.
        if each.__name__ == names.SKATE or each.__name__ in _adopted or names.alias_of(each.__name__) is None:
            continue
        before = type(each)
        if before not in _classes:
            _classes[before] = type(f"Adopted{before.__name__}", (Adopted, before), {"__doc__": None})
        _adopted[each.__name__] = each, before
        each.__class__ = _classes[before]


def begin() -> None:
    """Start adopting modules as they are imported."""
    _is_on.set()


def end() -> None:
    """Stop adopting, and restore the classes of all adopted modules."""
    _is_on.clear()
    while _adopted:
        _, (module, before) = _adopted.popitem()
        module.__class__ = before
