"""How a report is made, under Ray's path."""

from skate.train._context import CheckpointConsistencyMode
from skate.train._session import CheckpointUploadMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
