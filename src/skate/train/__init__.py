"""Train: run a training function on several workers, store its checkpoints, and recover from failures.

The private packages form layers. Each imports only those above it in this list:

- `_failures`: the exceptions, and the search for the cause of a failure.
- `_reports`: the messages of workers, and the ledger that decides when a report is complete.
- `_storage`: the folder of a run, its checkpoints, and its result.
- `_config`: the configuration of a run.
- `_views`: progress, logs, event files and plots.
- `_workers`: the worker actors, their sessions, the worker group, and its supervision.
- `_run`: the controller of a run. The extension point `backend` lies between it and `_workers`.
- `_frameworks`: code that the trainers of several frameworks share. They derive from `data_parallel_trainer`.
"""

from skate.air.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from skate.train import _extra as _extra
from skate.train._config.datasets import DataConfig
from skate.train._config.preemption import PreemptionInfo
from skate.train._config.validation_config import ValidationConfig, ValidationFn, ValidationTaskConfig
from skate.train._failures.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)
from skate.train._run.callbacks import UserCallback
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.result import Result
from skate.train._workers.report_arguments import CheckpointUploadMode
from skate.train._workers.train_context import (
    TRAIN_DATASET_KEY,
    CheckpointConsistencyMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
)
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
    "NCCLHangError",
    "PreemptionError",
    "PreemptionInfo",
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
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
]
