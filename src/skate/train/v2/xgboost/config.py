"""How workers of XGBoost find each other, under Ray's path."""

from skate.train.xgboost.config import XGBoostConfig

__all__ = ["XGBoostConfig"]
