"""Reports from Keras, under one of Ray's older paths."""

from skate.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
