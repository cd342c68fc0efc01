"""The configuration of checkpoint validations, under Ray's path."""

from skate.train._config.validation_config import ValidationConfig, ValidationFn, ValidationTaskConfig

__all__ = ["ValidationConfig", "ValidationFn", "ValidationTaskConfig"]
