"""The configuration for AWS Neuron devices, which Skate does not support."""

from __future__ import annotations

from typing import NoReturn

from skate.train.torch.config import TorchConfig

__all__ = ["TorchXLAConfig"]


class TorchXLAConfig(TorchConfig):
    """Ray's configuration of torch/XLA on AWS Neuron devices, which Skate does not support.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, backend: str | None = None, *args: object, **options: object) -> NoReturn:
        raise NotImplementedError(
            "TorchXLAConfig is for AWS Neuron devices, which Skate does not support: train on GPUs or CPUs with "
            "TorchConfig(), or on TPUs with JaxTrainer"
        )
