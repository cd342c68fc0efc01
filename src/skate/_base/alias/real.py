"""Libraries of the real Ray without a counterpart in Skate, for processes that have the real Ray loaded.

So a program on the ray engine may use `ray.rllib`, which runs on the same Ray. Only whole packages below `ray` are
taken, because modules of Skate do not fit into packages of Ray.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

from skate._base.alias import names

is_here = threading.Event()  # set while the real Ray is in this process together with the alias
_import_module = importlib.import_module  # the original, which ignores the importing module


def library(alias: str) -> ModuleType | None:
    """Return a module of a library that only Ray has; None without such a module, or without the real Ray."""
    if not is_here.is_set():
        return None
    top = ".".join(alias.split(".")[:2])
    if any(part.startswith("_") for part in alias.split(".")) or names.spec_behind(top) is not None:
        return None
    try:
        return _import_module(alias)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{alias}.".startswith(f"{error.name}."):
            raise  # it exists, but needs a package that is not installed
        return None
