"""Train: run a training function on several workers, keep its checkpoints, and go on when workers fail.

What is private has packages of its own. Each imports only those that are named before it:

- `_failures`: what is raised, and which failure is the cause of the others.
- `_reports`: what workers tell, and which reports are complete.
- `_storage`: the folder of a run, its checkpoints, and the result that is read from there.
- `_config`: how a run is set up.
- `_views`: what people look at.
- `_workers`: the actors, their sessions, the group that they make, and its supervision.
- `_run`: whoever drives a run. The extension point `backend` stands between the workers and it.
- `_frameworks`: what trainers of several frameworks share. They derive from the one in `data_parallel_trainer`.
"""

from skate.train import _extra as _extra
from skate.train._config.datasets import DataConfig
from skate.train._config.preemption import PreemptionInfo
from skate.train._config.shared import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from skate.train._config.validation import ValidationConfig, ValidationFn, ValidationTaskConfig
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
from skate.train._workers.arguments import CheckpointUploadMode
from skate.train._workers.context import (
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
