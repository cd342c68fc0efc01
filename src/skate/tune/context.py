"""The context of a trial."""

from __future__ import annotations

from typing import Any, NamedTuple

from skate.tune._workers.session import need_session
from skate.tune._workers.trainer_session import trainer_session
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.experiment._storage import TrialStorage

__all__ = ["TuneContext", "get_context"]


class TuneContext:
    """Information about the trial that runs in this process.

    A trial is one process, so its ranks are 0 and its world size is 1. In the training function of a trainer, the ranks
    are those of the worker; without a Tuner, the trial is the run of the trainer.
    """

    def get_trial_name(self) -> str:
        """Return the name of the trial."""
        return _trial("get_trial_name()").trial_name

    def get_trial_id(self) -> str:
        """Return the id of the trial."""
        return _trial("get_trial_id()").trial_id

    def get_trial_resources(self) -> PlacementGroupFactory | None:
        """Return the resources of the trial."""
        return _trial("get_trial_resources()").resources

    def get_trial_dir(self) -> str:
        """Return the trial's folder on this machine."""
        return _trial("get_trial_dir()").trial_dir

    def get_experiment_name(self) -> str:
        """Return the name of the experiment."""
        return _trial("get_experiment_name()").experiment_name

    def get_storage(self) -> TrialStorage:
        """Return the folders of the trial and of its experiment."""
        import pyarrow.fs as pafs

        trainer = trainer_session()
        if trainer is not None:
            folder = _trial("get_storage()").trial_dir
            return TrialStorage(trainer.storage.storage_filesystem or pafs.LocalFileSystem(), folder, folder)
        session = need_session("get_storage()")
        storage, folder = session.settings.storage, session.assignment.folder
        if storage is None:
            return TrialStorage(pafs.LocalFileSystem(), folder, folder)
        return TrialStorage(storage.filesystem, storage.path_of(folder), folder)

    def get_metadata(self) -> dict[str, Any]:
        """Return the `metadata` of the trainer; empty in other trials."""
        trainer = trainer_session()
        return {} if trainer is None else dict(trainer.assignment.metadata)

    def get_world_size(self) -> int:
        """Return the number of processes of the trial."""
        return self._rank("world_size", "get_world_size()", 1)

    def get_world_rank(self) -> int:
        """Return the rank of this process."""
        return self._rank("world_rank", "get_world_rank()", 0)

    def get_local_world_size(self) -> int:
        """Return the number of processes of the trial on this node."""
        return self._rank("local_world_size", "get_local_world_size()", 1)

    def get_local_rank(self) -> int:
        """Return the rank of this process on its node."""
        return self._rank("local_rank", "get_local_rank()", 0)

    def get_node_rank(self) -> int:
        """Return the rank of this node."""
        return self._rank("node_rank", "get_node_rank()", 0)

    def _rank(self, name: str, call: str, alone: int) -> int:
        trainer = trainer_session()
        if trainer is not None:
            return int(getattr(trainer.ranks, name))
        need_session(call)
        return alone


class _Trial(NamedTuple):
    trial_id: str
    trial_name: str
    trial_dir: str
    experiment_name: str
    resources: PlacementGroupFactory | None


def _trial(call: str) -> _Trial:
    """Return the trial that runs in this process, or that the training function in this process belongs to."""
    trainer = trainer_session()
    if trainer is None:
        session = need_session(call)
        trial = session.assignment
        return _Trial(
            trial.trial_id,
            trial.trial_name,
            trial.folder,
            session.settings.experiment_name,
            session.resources,
        )
    from skate.train import get_context as get_train_context

    context, info = get_train_context(), trainer.assignment.trial
    return _Trial(
        context.get_trial_id(),
        context.get_trial_name(),
        context.get_trial_dir(),
        context.get_experiment_name(),
        None if info is None else info.resources,
    )


_context = TuneContext()


def get_context() -> TuneContext:
    """Return the context of the trial that runs in this process."""
    return _context
