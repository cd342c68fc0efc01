"""Errors of trainers, under one of Ray's older paths."""

from skate.train._failures.errors import TrainingFailedError

__all__ = ["TrainingFailedError"]
