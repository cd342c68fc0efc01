"""The integration with MLflow, under the path of the other loggers."""

from skate.air.integrations.mlflow import MLflowLoggerCallback

__all__ = ["MLflowLoggerCallback"]
