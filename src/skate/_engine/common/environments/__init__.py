"""Runtime environments on this machine: packing files, installing packages, preparing workers.

Names are loaded at their first use, because most programs need neither the archive nor the process modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate._engine.common.environments.cache import Cache, default_cache_dir
    from skate._engine.common.environments.fingerprints import fingerprint
    from skate._engine.common.environments.hooks import export_setup_hook, run_setup_hook
    from skate._engine.common.environments.packages import pack
    from skate._engine.common.environments.preparation import WorkerEnvironment, prepare

__all__ = [
    "Cache",
    "WorkerEnvironment",
    "default_cache_dir",
    "export_setup_hook",
    "fingerprint",
    "pack",
    "prepare",
    "run_setup_hook",
]

_HOMES = {
    "Cache": "cache",
    "WorkerEnvironment": "preparation",
    "default_cache_dir": "cache",
    "export_setup_hook": "hooks",
    "fingerprint": "fingerprints",
    "pack": "packages",
    "prepare": "preparation",
    "run_setup_hook": "hooks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
