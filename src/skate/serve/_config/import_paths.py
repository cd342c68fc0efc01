"""Functions and classes that a configuration names by import path or contains as objects.

An object is stored as its import path and its pickle, so that it can be loaded where its module cannot be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from skate import cloudpickle


def path_of(target: Any) -> str:
    """Return the import path of a function or class."""
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{name}"


def load(path: str) -> Any:
    """Return the object at an import path: `module:name` or `module.name`.

    A path below `ray.serve` is resolved in Skate if it exists there, so that files written for Ray work.

    Raises:
        ModuleNotFoundError: If the module does not exist.
        AttributeError: If the module has no such name.
        ValueError: If the import path is malformed.
    """
    module_name, name = split(path)
    module: Any = importlib.import_module(_in_skate(module_name))
    for part in name.split("."):
        try:
            module = getattr(module, part)
        except AttributeError:
            raise AttributeError(
                f"Module {module_name!r} has no attribute {name!r}, required by {path!r}."
            ) from None
    return module


def split(path: str) -> tuple[str, str]:
    """Return the module and the name of an import path."""
    module, separator, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module and separator and name) or ":" in name:
        raise ValueError(f"{path!r} is not an import path: write 'module:name' or 'module.name'.")
    return module, name


def _in_skate(module: str) -> str:
    if not module.startswith("ray.serve."):
        return module
    ours = f"skate{module.removeprefix('ray')}"
    try:
        found = importlib.util.find_spec(ours)
    except ModuleNotFoundError:
        found = None
    return ours if found else module


def pack(target: Any) -> bytes:
    """Return the pickle of a function or class, with its code if other processes cannot import it."""
    packed: bytes = cloudpickle.dumps(target)
    return packed


def unpack(packed: bytes) -> Any:
    """Return the object that `pack` pickled."""
    return cloudpickle.loads(packed)
