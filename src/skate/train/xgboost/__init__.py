"""Training with XGBoost."""

from skate.train.xgboost._xgboost_utils import RayTrainReportCallback
from skate.train.xgboost.config import XGBoostConfig
from skate.train.xgboost.xgboost_checkpoint import XGBoostCheckpoint
from skate.train.xgboost.xgboost_trainer import XGBoostTrainer

__all__ = ["RayTrainReportCallback", "XGBoostCheckpoint", "XGBoostConfig", "XGBoostTrainer"]
