"""The trainer for XGBoost, under Ray's path."""

from skate.train.xgboost.xgboost_trainer import XGBoostTrainer

__all__ = ["XGBoostTrainer"]
