"""Where a worker stands in its run, under Ray's path."""

from skate.train._workers.context import LocalTrainContext, TrainContext
from skate.train._workers.context import TrainContext as DistributedTrainContext

__all__ = ["DistributedTrainContext", "LocalTrainContext", "TrainContext"]
