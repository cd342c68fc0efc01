"""Libraries of the real Ray that Skate has nothing for: theirs are used where the real Ray is in the process.

So a program on the ray engine may use `ray.rllib`, which runs on the same Ray beside Skate. Only whole packages below
`ray` are taken: a module of which Skate has a part would not fit to Ray's.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

from skate._base.alias import names

is_here = threading.Event()  # set while the real Ray is in this process beside the alias
_import_module = importlib.import_module  # the one that does not ask who imports


def library(alias: str) -> ModuleType | None:
    """Return a module of a library that Ray alone has; None if there is none, or no real Ray in this process."""
    if not is_here.is_set():
        return None
    top = ".".join(alias.split(".")[:2])
    if any(part.startswith("_") for part in alias.split(".")) or names.spec_behind(top) is not None:
        return None
    try:
        return _import_module(alias)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{alias}.".startswith(f"{error.name}."):
            raise  # it is there, and needs something that is not installed
        return None
