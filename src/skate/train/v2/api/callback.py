"""Callbacks of users, under Ray's path."""

from skate.air.config import RunCallback as RayTrainCallback
from skate.train._run.callbacks import UserCallback

__all__ = ["RayTrainCallback", "UserCallback"]
