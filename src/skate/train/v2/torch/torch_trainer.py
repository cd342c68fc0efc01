"""The trainer for torch, under Ray's path."""

from skate.train.torch.torch_trainer import TorchTrainer

__all__ = ["TorchTrainer"]
