"""Training on AWS Neuron devices, under Ray's path."""

from skate.train.torch.xla.config import TorchXLAConfig

__all__ = ["TorchXLAConfig"]
