"""The session of a worker, under a private path of Ray's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.train._workers import sessions, train_context

if TYPE_CHECKING:
    from skate.data import DataIterator
    from skate.train._storage.checkpoint import Checkpoint
    from skate.train._storage.run_folder import Storage

__all__ = ["get_session"]


class _TrainSession:
    """The attributes and methods of Ray's session that programs use; `skate.train.get_context()` is the public API."""

    def __init__(self, session: sessions.Session) -> None:
        ranks, name = session.ranks, session.storage.experiment_dir_name
        self.world_rank = ranks.world_rank
        self.world_size = ranks.world_size
        self.local_rank = ranks.local_rank
        self.local_world_size = ranks.local_world_size
        self.node_rank = ranks.node_rank
        self.experiment_name = self.trial_name = self.trial_id = name
        self.metadata = dict(session.assignment.metadata)
        self.storage: Storage = session.storage
        self.loaded_checkpoint: Checkpoint | None = session.checkpoint
        self.dataset_shard = session.assignment.shards

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None, **options: Any) -> None:
        """Report metrics and a checkpoint, as `skate.train.report` does."""
        train_context.report(metrics, checkpoint, **options)

    def get_dataset_shard(self, dataset_name: str | None = None) -> DataIterator:
        """Return this worker's part of a dataset."""
        return train_context.get_dataset_shard(dataset_name)


def get_session() -> _TrainSession | None:
    """Return the session of the training function in this process; None outside of one."""
    return _TrainSession(sessions.current("get_session()")) if sessions.is_active() else None
