"""Constants, under Ray's path."""

from typing import Final

from skate.train._workers.train_context import TRAIN_DATASET_KEY

__all__ = [
    "DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S",
    "RAY_CHDIR_TO_TRIAL_DIR",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S",
    "TRAIN_DATASET_KEY",
]

RAY_CHDIR_TO_TRIAL_DIR: Final = (
    "RAY_CHDIR_TO_TRIAL_DIR"  # the variable that keeps trials in the program's folder
)
TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S: Final = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"
DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S: Final = 30
