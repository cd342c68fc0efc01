"""Where a worker stands in its run, under Ray's path."""

from skate.train._workers.context import TrainContext, get_context

__all__ = ["TrainContext", "get_context"]
