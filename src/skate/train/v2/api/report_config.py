"""How a report is made, under Ray's path."""

from skate.train._workers.arguments import CheckpointUploadMode
from skate.train._workers.context import CheckpointConsistencyMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
