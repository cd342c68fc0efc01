"""The integration with Weights & Biases, under the path of the other loggers."""

from skate.air.integrations.wandb import WandbLoggerCallback

__all__ = ["WandbLoggerCallback"]
