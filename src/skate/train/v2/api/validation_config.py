"""How checkpoints are validated, under Ray's path."""

from skate.train._config.validation import ValidationConfig, ValidationFn, ValidationTaskConfig

__all__ = ["ValidationConfig", "ValidationFn", "ValidationTaskConfig"]
