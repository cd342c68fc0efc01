"""The folders of a trial and of its experiment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@dataclass(frozen=True)
class TrialStorage:
    """Where a trial stores its files.

    Attributes:
        storage_filesystem: The filesystem of all paths.
        trial_fs_path: The trial's folder.
        trial_working_directory: The working directory of the trial, unless `RAY_CHDIR_TO_TRIAL_DIR` is 0. If the
            experiment is not stored on a local disk, its files are uploaded to `trial_fs_path`.
    """

    storage_filesystem: pafs.FileSystem
    trial_fs_path: str
    trial_working_directory: str

    @property
    def trial_driver_staging_path(self) -> str:
        """The folder in which callbacks of the driver store files of the trial."""
        return self.trial_working_directory

    @property
    def trial_dir_name(self) -> str:
        """The name of the trial's folder."""
        return os.path.basename(self.trial_fs_path)

    @property
    def experiment_fs_path(self) -> str:
        """The experiment's folder."""
        return os.path.dirname(self.trial_fs_path)

    @property
    def experiment_driver_staging_path(self) -> str:
        """The folder in which callbacks of the driver store files of the experiment."""
        return os.path.dirname(self.trial_working_directory)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's folder."""
        return os.path.basename(self.experiment_fs_path)

    @property
    def storage_fs_path(self) -> str:
        """The folder of all experiments."""
        return os.path.dirname(self.experiment_fs_path)
