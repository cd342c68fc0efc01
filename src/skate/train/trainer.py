"""Errors of trainers, under one of Ray's older paths."""

from skate.train._errors import TrainingFailedError

__all__ = ["TrainingFailedError"]
