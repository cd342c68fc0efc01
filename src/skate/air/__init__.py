"""What the libraries above the core share: settings of runs, filesystems, and packages that only some need."""

from skate.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]
