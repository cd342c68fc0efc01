"""The options of reports, under Ray's path."""

from skate.train._workers.report_arguments import CheckpointUploadMode
from skate.train._workers.train_context import CheckpointConsistencyMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
