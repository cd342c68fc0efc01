"""Training with torch."""

from skate.train.torch import _extra as _extra
from skate.train.torch.config import TorchConfig
from skate.train.torch.torch_checkpoint import TorchCheckpoint
from skate.train.torch.torch_trainer import TorchTrainer
from skate.train.torch.train_loop_utils import (
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]
