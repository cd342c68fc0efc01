"""The configuration of synchronization, under an older path of Ray's."""

from skate.air.config import SyncConfig

__all__ = ["SyncConfig"]
