"""The backend for XGBoost, under Ray's path."""

from skate.train.xgboost.config import XGBoostConfig

__all__ = ["XGBoostConfig"]
