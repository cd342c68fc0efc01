"""Training with the `Trainer` of transformers, in a training function of `TorchTrainer`."""

from skate.train.huggingface.transformers._prepare import prepare_trainer
from skate.train.huggingface.transformers._report import RayTrainReportCallback

__all__ = ["RayTrainReportCallback", "prepare_trainer"]
