"""Callbacks that write the results of trials to files and experiment trackers."""

from skate.tune.logger.aim import AimLoggerCallback
from skate.tune.logger.csv import CSVLoggerCallback
from skate.tune.logger.json import JsonLoggerCallback
from skate.tune.logger.logger import LoggerCallback
from skate.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = [
    "AimLoggerCallback",
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
]
