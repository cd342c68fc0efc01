"""The context of a training function, under Ray's path."""

from skate.train._workers.train_context import LocalTrainContext, TrainContext
from skate.train._workers.train_context import TrainContext as DistributedTrainContext

__all__ = ["DistributedTrainContext", "LocalTrainContext", "TrainContext"]
