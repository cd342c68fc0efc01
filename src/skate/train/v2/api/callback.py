"""What users can hook into a run, under Ray's path."""

from skate.air._callbacks import RunCallback as RayTrainCallback
from skate.train._run.callbacks import UserCallback

__all__ = ["RayTrainCallback", "UserCallback"]
