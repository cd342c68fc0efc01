"""Where a worker stands in its run, under Ray's path."""

from skate.train._workers.context import LocalTrainContext, TrainContext

__all__ = ["LocalTrainContext", "TrainContext"]
