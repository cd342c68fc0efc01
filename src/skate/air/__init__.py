"""Code that the libraries share: configuration of runs, filesystems, and optional packages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from skate.air.result import Result

__all__ = ["CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]


def __getattr__(name: str) -> Any:
    # Serve needs only other modules of this package, and results belong to the training library, which imports it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("skate.air.result" if name == "Result" else "skate.air.config")
    return getattr(module, name)
