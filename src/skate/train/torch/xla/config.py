"""Training on AWS Neuron devices, which Skate does not do."""

from __future__ import annotations

from typing import NoReturn

from skate.train.torch.config import TorchConfig

__all__ = ["TorchXLAConfig"]


class TorchXLAConfig(TorchConfig):
    """The settings of torch/XLA on AWS Neuron devices in Ray; cannot be made here.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, backend: str | None = None, *args: object, **options: object) -> NoReturn:
        raise NotImplementedError(
            "TorchXLAConfig is for AWS Neuron devices, which Skate does not use: train on GPUs or CPUs with "
            "TorchConfig(), or on TPUs with JaxTrainer"
        )
