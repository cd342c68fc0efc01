"""The modules of installed distributions that a worker imports when it loads user code."""

from __future__ import annotations

import os
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Self

from skate._engine.local.worker import surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

# Libraries that change others when they are told to: what is imported before that differs from what is imported after.
_PATCHING = ("eventlet", "gevent")


class ImportWatch:
    """Lists the modules that are imported until it ends, and measures the processor time.

    It lists modules of installed distributions only, and only as long as the surroundings are those of the worker:
    what user code imports after it has set an environment variable may depend on it.

    >>> with ImportWatch() as watch:
    ...     import json
    >>> watch.modules  # it belongs to the standard library
    []
    """

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.seconds = 0.0
        self._found: dict[str, None] = {}
        self._ends = False

    def __enter__(self) -> Self:
        self._since = time.thread_time()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.seconds = time.thread_time() - self._since
        if self._found and not any(name in sys.modules for name in _PATCHING):
            folders = _package_folders()
            self.modules = [name for name in self._found if _is_in(folders, sys.modules.get(name))]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Note a module that is about to be imported, and leave it to others to find it."""
        if not self._ends and not surroundings.are_unchanged():
            self._ends = True
        if not self._ends:
            self._found[name] = None
        return None


def _package_folders() -> tuple[str, ...]:
    """Return the folders on the import path that installed distributions are in."""
    return tuple(entry + os.sep for entry in sys.path if entry.endswith(("site-packages", "dist-packages")))


def _is_in(folders: tuple[str, ...], module: ModuleType | None) -> bool:
    spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
    origin = getattr(spec, "origin", None)
    return (
        isinstance(origin, str)
        and origin.startswith(folders)
        and spec is not None
        and spec.name.partition(".")[0] != __name__.partition(".")[0]
    )
