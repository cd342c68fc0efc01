"""Functions and classes that a user names by an import path or hands over as they are.

A configuration is text in a file and an object in a program. Both end in the same form: the path as text, and,
where it was an object, its pickle, so that it also arrives where the module cannot be imported.
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
    """Import what a path names: `module:name` or `module.name`.

    A path into `ray.serve` means the same place in Skate where there is one, so that files written for Ray work.

    Raises:
        ModuleNotFoundError: There is no such module.
        AttributeError: The module has no such name.
        ValueError: It is no import path.
    """
    module_name, name = split(path)
    module: Any = importlib.import_module(_in_skate(module_name))
    for part in name.split("."):
        try:
            module = getattr(module, part)
        except AttributeError:
            raise AttributeError(
                f"Module {module_name!r} has no attribute {name!r}, asked for by {path!r}."
            ) from None
    return module


def split(path: str) -> tuple[str, str]:
    """Return the module and the name that an import path consists of."""
    module, separator, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module and separator and name) or ":" in name:
        raise ValueError(f"{path!r} is no import path: write 'module:name' or 'module.name'.")
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
    """Return the pickle of a function or class, with its code where it cannot be imported elsewhere."""
    packed: bytes = cloudpickle.dumps(target)
    return packed


def unpack(packed: bytes) -> Any:
    """Return what `pack` was given."""
    return cloudpickle.loads(packed)
