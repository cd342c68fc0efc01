"""Skate's `ray` and the real one in one process.

The real Ray finds its own modules in `sys.modules`: by imports inside functions, from C, and by unpickling. So
`sys.modules` contains Ray's modules under these names, and none of Skate's. The importing module decides what `import
ray` means: a module of Ray gets Ray, all others get Skate. This replaces `builtins.__import__`, which the import
statement calls with the globals of the importing module, and `importlib.import_module`.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

from skate._base.alias import names
from skate._base.alias.adoption import child_of, reach
from skate._base.alias.facade import ray

Importer = Mapping[str, Any] | None  # the globals of the importing module


class ImportHooks:
    """Divides imports between Ray and Skate, from `put_on` to `take_off`."""

    def __init__(self) -> None:
        self.are_on = False
        self._hidden: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []

    def put_on(self) -> None:
        """Start dividing imports."""
        if not self.are_on:
            self.are_on = True
            self._replace(builtins, "__import__", self._dividing_statement)
            self._replace(importlib, "import_module", self._dividing_function)

    def take_off(self) -> None:
        """Stop dividing imports; if other code has wrapped the hooks since, they stay without effect."""
        self.are_on = False
        while self._hidden:
            module, name, original, ours = self._hidden.pop()
            if getattr(module, name) is ours:
                setattr(module, name, original)

    def _replace(self, module: ModuleType, name: str, divide: Callable[..., Any]) -> None:
        original = getattr(module, name)
        # With the name and module of the original, so that it is pickled as that.
        ours = functools.wraps(original)(divide(original))
        self._hidden.append((module, name, original, ours))
        setattr(module, name, ours)

    def _dividing_statement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def divided(
            name: str,
            globals: Importer = None,
            locals: Importer = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            if not name.startswith(names.RAY):  # most imports, which must not become slower
                return original(name, globals, locals, fromlist, level)
            if not self.are_on or level != 0 or not names.is_ray(name) or _is_of_ray(globals):
                return original(name, globals, locals, fromlist, level)
            if fromlist == []:  # from C code such as pickle, which then reads the module from sys.modules
                return original(name, globals, locals, fromlist, level)
            return _import(name, fromlist or ())

        return divided

    def _dividing_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def divided(name: str, package: str | None = None) -> ModuleType:
            full = importlib.util.resolve_name(name, package) if name.startswith(".") else name
            if self.are_on and names.is_ray(full) and not _is_of_ray(sys._getframe(1).f_globals):
                return _module(full)
            return cast("ModuleType", original(name, package))

        return divided


def _import(name: str, fromlist: Sequence[str]) -> ModuleType:
    """Return the module that the import statement binds: the first one of the name, or the one with the names."""
    module = _module(name)
    if not fromlist:
        return ray
    every: Sequence[str] = getattr(module, "__all__", ()) if "*" in fromlist else ()
    for each in {*fromlist, *every} - {"*"}:
        if not hasattr(module, each):
            child_of(name, each)
    return module


def _module(name: str) -> ModuleType:
    return ray if name == names.RAY else reach(name)


def _is_of_ray(importer: Importer) -> bool:
    """Return whether the importing module belongs to the real Ray."""
    if not importer:
        return False
    if names.is_ray(str(importer.get("__name__", ""))):
        return True
    # The programs that Ray starts, such as workers, are called `__main__`.
    home = os.path.dirname(getattr(sys.modules.get(names.RAY), "__file__", None) or "")
    return bool(home) and str(importer.get("__file__", "")).startswith(home + os.sep)
