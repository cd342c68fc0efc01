"""The base of trainers, and their errors, under one of Ray's older paths."""

from skate.train._failures.errors import TrainingFailedError
from skate.train.data_parallel_trainer import DataParallelTrainer as BaseTrainer

__all__ = ["BaseTrainer", "TrainingFailedError"]
