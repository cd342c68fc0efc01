"""Training with Lightning, in a training function of `TorchTrainer`."""

from skate.train.lightning._environment import RayLightningEnvironment
from skate.train.lightning._prepare import prepare_trainer
from skate.train.lightning._report import RayTrainReportCallback
from skate.train.lightning._strategies import RayDDPStrategy, RayDeepSpeedStrategy, RayFSDPStrategy

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]
