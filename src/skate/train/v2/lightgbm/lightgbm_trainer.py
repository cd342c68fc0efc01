"""The trainer for LightGBM, under Ray's path."""

from skate.train.lightgbm.lightgbm_trainer import LightGBMTrainer

__all__ = ["LightGBMTrainer"]
