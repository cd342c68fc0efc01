"""Training with the `Trainer` of transformers, in a training function of `TorchTrainer`."""

from skate.train.huggingface.transformers._transformers_utils import RayTrainReportCallback, prepare_trainer

__all__ = ["RayTrainReportCallback", "prepare_trainer"]
