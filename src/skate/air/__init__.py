"""Code that the libraries share: configuration of runs, filesystems, and optional packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

if TYPE_CHECKING:
    from skate.air.result import Result

__all__ = ["CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]


def __getattr__(name: str) -> Any:
    # Results belong to the training library, which imports this package.
    if name != "Result":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import skate.air.result

    return skate.air.result.Result
