"""The context of a trial."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skate.tune._workers.session import need_session
from skate.tune.execution.placement_groups import PlacementGroupFactory

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["TuneContext", "get_context"]


@dataclass(frozen=True)
class TrialStorage:
    """Where a trial stores its files.

    Attributes:
        storage_filesystem: The filesystem of all paths.
        trial_fs_path: The trial's folder.
        trial_working_directory: The folder that the trial works in, unless `RAY_CHDIR_TO_TRIAL_DIR` is 0. If the
            experiment is not stored on a local disk, its files are uploaded to `trial_fs_path`.
    """

    storage_filesystem: pafs.FileSystem
    trial_fs_path: str
    trial_working_directory: str

    @property
    def trial_dir_name(self) -> str:
        """The name of the trial's folder."""
        return os.path.basename(self.trial_fs_path)

    @property
    def experiment_fs_path(self) -> str:
        """The experiment's folder."""
        return os.path.dirname(self.trial_fs_path)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's folder."""
        return os.path.basename(self.experiment_fs_path)

    @property
    def storage_fs_path(self) -> str:
        """The folder of all experiments."""
        return os.path.dirname(self.experiment_fs_path)


class TuneContext:
    """Facts about the trial that runs in this process.

    A trial is one process, so its ranks are 0 and its world size is 1. In the training function of a trainer,
    `skate.train.get_context()` has the ranks of the workers.
    """

    def get_trial_name(self) -> str:
        """Return the name of the trial."""
        return need_session("get_trial_name()").assignment.trial_name

    def get_trial_id(self) -> str:
        """Return the id of the trial."""
        return need_session("get_trial_id()").assignment.trial_id

    def get_trial_resources(self) -> PlacementGroupFactory | None:
        """Return the resources of the trial."""
        return need_session("get_trial_resources()").resources

    def get_trial_dir(self) -> str:
        """Return the trial's folder on this machine."""
        return need_session("get_trial_dir()").assignment.folder

    def get_experiment_name(self) -> str:
        """Return the name of the experiment."""
        return need_session("get_experiment_name()").settings.experiment_name

    def get_storage(self) -> TrialStorage:
        """Return the folders of the trial and of its experiment."""
        import pyarrow.fs as pafs

        session = need_session("get_storage()")
        storage, folder = session.settings.storage, session.assignment.folder
        if storage is None:
            return TrialStorage(pafs.LocalFileSystem(), folder, folder)
        return TrialStorage(storage.filesystem, storage.path_of(folder), folder)

    def get_world_size(self) -> int:
        """Return the number of processes of the trial, which is 1."""
        need_session("get_world_size()")
        return 1

    def get_world_rank(self) -> int:
        """Return the rank of this process, which is 0."""
        need_session("get_world_rank()")
        return 0

    def get_local_world_size(self) -> int:
        """Return the number of processes of the trial on this node, which is 1."""
        return self.get_world_size()

    def get_local_rank(self) -> int:
        """Return the rank of this process on its node, which is 0."""
        return self.get_world_rank()

    def get_node_rank(self) -> int:
        """Return the rank of this node, which is 0."""
        return self.get_world_rank()


_context = TuneContext()


def get_context() -> TuneContext:
    """Return the context of the trial that runs in this process."""
    return _context
