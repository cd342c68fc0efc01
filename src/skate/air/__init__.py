"""Code that the libraries share: configuration of runs, filesystems, and optional packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from skate.air.result import Result
else:
    from skate._base.lazy_names import lazy_names

    # Serve needs other modules of this package only, and results belong to the training library, which imports it.
    __getattr__ = lazy_names(
        __name__,
        {
            "CheckpointConfig": "skate.air.config.CheckpointConfig",
            "FailureConfig": "skate.air.config.FailureConfig",
            "Result": "skate.air.result.Result",
            "RunConfig": "skate.air.config.RunConfig",
            "ScalingConfig": "skate.air.config.ScalingConfig",
        },
    )

__all__ = ["CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]
