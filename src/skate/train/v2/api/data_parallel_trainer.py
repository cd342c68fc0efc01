"""The trainer that runs one function on several workers, under Ray's path."""

from skate.train.data_parallel_trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
