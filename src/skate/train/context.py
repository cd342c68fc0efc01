"""The context of a training function, under Ray's path."""

from skate.train._workers.train_context import TrainContext, get_context

__all__ = ["TrainContext", "get_context"]
