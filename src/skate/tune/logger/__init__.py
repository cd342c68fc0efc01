"""Callbacks that write the results of trials to files."""

from skate.tune.logger.csv import CSVLoggerCallback
from skate.tune.logger.json import JsonLoggerCallback
from skate.tune.logger.logger import LoggerCallback
from skate.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]
