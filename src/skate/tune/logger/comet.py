"""The integration with Comet, under the path of the other loggers."""

from skate.air.integrations.comet import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
