"""Names that programs refer to by a constant, under Ray's path."""

from typing import Final

from skate.train._workers.context import TRAIN_DATASET_KEY

__all__ = [
    "DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S",
    "TRAIN_DATASET_KEY",
]

TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S: Final = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"
DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S: Final = 30
