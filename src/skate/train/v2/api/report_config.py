"""How a report is made, under Ray's path."""

from skate.train._workers.context import CheckpointConsistencyMode
from skate.train._workers.sessions import CheckpointUploadMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
