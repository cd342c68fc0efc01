"""The trainer for TensorFlow, under Ray's path."""

from skate.train.tensorflow.tensorflow_trainer import TensorflowTrainer

__all__ = ["TensorflowTrainer"]
