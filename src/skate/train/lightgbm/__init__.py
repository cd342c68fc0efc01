"""Training with LightGBM."""

from skate.train.lightgbm._lightgbm_utils import RayTrainReportCallback, normalize_pandas_for_lightgbm
from skate.train.lightgbm.config import LightGBMConfig, get_network_params
from skate.train.lightgbm.lightgbm_checkpoint import LightGBMCheckpoint
from skate.train.lightgbm.lightgbm_trainer import LightGBMTrainer

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
]
