"""How a run is set up: settings that all libraries share."""

from skate.air.config import (
    DEFAULT_STORAGE,
    STORAGE_VARIABLE,
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)

__all__ = [
    "DEFAULT_STORAGE",
    "STORAGE_VARIABLE",
    "CheckpointConfig",
    "FailureConfig",
    "LoggingConfig",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
]
