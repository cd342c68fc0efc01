"""Modules of Skate that are reached under Ray's names, while the alias is on.

Such a module stays what it is; it only gets a class of its own for as long, so that a name it lacks is called
what the user calls it, and its submodules are found as attributes, imported or not.
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
    """Import the module of Skate behind a name of Ray's, other than `ray` itself; else that of a library of Ray's.

    Raises:
        ModuleNotFoundError: There is none. The error calls it what the user does.
    """
    target = names.target_of(alias)
    if target is None:
        raise missing.missing_module(alias)
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # it is there, and needs something that is not
        theirs = real.library(alias)
        if theirs is not None:
            return theirs
        raise missing.missing_module(names.alias_of(error.name) or alias) from None
    adopt(module)
    return module


def child_of(alias: str, name: str) -> ModuleType | None:
    """Return a module's submodule, imported if need be; None if there is none of that name."""
    target = names.target_of(f"{alias}.{name}")
    if target is None:
        return None
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # it is there, and needs something that is not
        return real.library(f"{alias}.{name}")
    adopt(module)
    return module


def is_dunder(name: str) -> bool:
    """Return whether Python asks for a name of its own; there is no need to explain that it is missing."""
    return name.startswith("__") and name.endswith("__")


class Adopted(ModuleType):
    """The part of an adopted module's class that is ours; the rest is the class it had."""

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
                    return  # it is of another package of ours, and found by __getattr__
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return imported, (self.__name__,)  # pickle knows modules by their exact class


def imported(name: str) -> ModuleType:
    """Return a module of Skate's: how an adopted one is unpickled."""
    return importlib.import_module(name)


def adopt(module: ModuleType) -> None:
    """Give a module, and what is loaded below it, the class that speaks the user's language.

    What is loaded below it later is adopted when importlib binds it to the module.
    """
    if module.__name__ in _adopted or not _is_on.is_set():
        return
    prefix = f"{module.__name__}."
    for each in (module, *(m for name, m in list(sys.modules.items()) if name.startswith(prefix))):
        # The top is not adopted: `ray` is a module of its own, and `skate` stays as it is.
        if each.__name__ == names.SKATE or each.__name__ in _adopted or names.alias_of(each.__name__) is None:
            continue
        before = type(each)
        if before not in _classes:
            _classes[before] = type(f"Adopted{before.__name__}", (Adopted, before), {"__doc__": None})
        _adopted[each.__name__] = each, before
        each.__class__ = _classes[before]


def begin() -> None:
    """Adopt modules from now on, as they are reached."""
    _is_on.set()


def end() -> None:
    """Adopt no more, and give all adopted modules the class back that they had."""
    _is_on.clear()
    while _adopted:
        _, (module, before) = _adopted.popitem()
        module.__class__ = before
