"""Installing and uninstalling the alias, also for child processes, and access to the real Ray meanwhile.

The `spawn` and `forkserver` methods of multiprocessing, joblib and `subprocess` start new interpreters. Those inherit
PYTHONPATH, and multiprocessing also copies `sys.path`, so both contain a folder whose module `ray` installs the alias.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from types import ModuleType

from skate._base.alias import adoption, names, real
from skate._base.alias.beside import ImportHooks
from skate._base.alias.facade import RayModule
from skate._base.alias.finder import RayFinder

IMPORT_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "import_path")
_VARIABLE = "PYTHONPATH"

_lock = threading.RLock()
_finder = RayFinder()
_hooks = ImportHooks()
_import_module = importlib.import_module  # the original, which ignores the importing module


def install() -> None:
    """Make `import ray`, and every submodule of it, mean Skate in this process and its children; idempotent.

    If the real Ray has been imported before, its own modules keep it, and child processes have it too.
    """
    with _lock:
        if installed():
            return
        adoption.begin()
        sys.meta_path.insert(0, _finder)
        if isinstance(sys.modules.get(names.RAY), RayModule | None):
            _share_with_children()
        else:
            _make_room()


def uninstall() -> None:
    """Restore the previous meaning of `import ray`; idempotent."""
    with _lock:
        _withdraw_from_children()
        if not installed():
            return
        sys.meta_path.remove(_finder)
        _finder.stands_aside = False
        real.is_here.clear()
        _hooks.take_off()
        _forget_modules()
        adoption.end()


def installed() -> bool:
    """Return whether `import ray` means Skate in this process."""
    return _finder in sys.meta_path


def real_ray(name: str = names.RAY) -> ModuleType:
    """Import the real Ray, or a module of it, whether the alias is installed or not.

    From the first call on, both are in this process: `import ray` is Skate except in Ray's own modules, and child
    processes have the real Ray.

    Args:
        name: The module's full name, like "ray.util.state".

    Raises:
        ImportError: Ray is not installed.
    """
    with _lock:
        _withdraw_from_children()  # Ray starts its own Python processes
        if not _real_ray_exists():
            if installed():
                _share_with_children()
            raise ImportError("The ray engine needs Ray: pip install 'skate[ray]'", name=names.RAY)
        if installed() and not _finder.stands_aside:
            _make_room()
    return _import_module(name)


def _real_ray_exists() -> bool:
    if not isinstance(sys.modules.get(names.RAY), RayModule | None):
        return True
    finders = (finder for finder in sys.meta_path if finder is not _finder)
    specs = (finder.find_spec(names.RAY, None) for finder in finders)
    return any(spec is not None and spec.origin is not None for spec in specs)  # else a folder without code


def _make_room() -> None:
    """Leave `sys.modules` to the real Ray, and divide imports by the importing module."""
    _withdraw_from_children()
    _finder.stands_aside = True
    real.is_here.set()
    _hooks.put_on()
    _forget_modules()


def _forget_modules() -> None:
    """Remove Skate's modules with Ray's names from `sys.modules`."""
    for name, module in list(sys.modules.items()):
        if names.is_ray(name) and (
            isinstance(module, RayModule) or getattr(module, "__name__", "").partition(".")[0] == names.SKATE
        ):
            del sys.modules[name]


def _share_with_children() -> None:
    """Make `import ray` mean Skate in Python processes that this one starts."""
    _withdraw_from_children()
    sys.path.insert(1, IMPORT_PATH)  # the position of PYTHONPATH, after the folder of the script
    inherited = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = f"{IMPORT_PATH}{os.pathsep}{inherited}" if inherited else IMPORT_PATH


def _withdraw_from_children() -> None:
    """Undo `_share_with_children`, also if this process is a child itself and has inherited the folder."""
    if IMPORT_PATH in sys.path:
        sys.path[:] = [entry for entry in sys.path if entry != IMPORT_PATH]
    inherited = os.environ.get(_VARIABLE, "")
    if IMPORT_PATH in inherited:
        kept = [entry for entry in inherited.split(os.pathsep) if entry != IMPORT_PATH]
        if kept:
            os.environ[_VARIABLE] = os.pathsep.join(kept)
        else:
            del os.environ[_VARIABLE]
