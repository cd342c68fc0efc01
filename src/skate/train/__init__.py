"""Train: run a training function on several workers, keep its checkpoints, and go on when workers fail."""

from skate.train._callbacks import UserCallback
from skate.train._checkpoint import Checkpoint
from skate.train._configs import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from skate.train._context import (
    TRAIN_DATASET_KEY,
    CheckpointConsistencyMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    report,
)
from skate.train._data_config import DataConfig
from skate.train._errors import ControllerError, TrainingFailedError, WorkerGroupError
from skate.train._result import Result
from skate.train._session import CheckpointUploadMode
from skate.train._validation_config import ValidationConfig, ValidationTaskConfig
from skate.train.backend import BackendConfig

__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "FailureConfig",
    "LoggingConfig",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "report",
]
