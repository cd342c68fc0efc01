"""The configuration of an experiment."""

from skate.tune.impl.config import CheckpointConfig, FailureConfig, RunConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig"]
