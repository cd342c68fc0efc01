"""Read an experiment from its folder, even while another program runs it. Nothing is locked or written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pyarrow.fs as pafs

from skate.train._storage import folders
from skate.tune._experiment.folder import JOURNAL, ExperimentFolder
from skate.tune._experiment.recorder import read_trials
from skate.tune._experiment.staging import open_folder
from skate.tune.experiment import Trial


@dataclass(frozen=True)
class StoredExperiment:
    """An experiment as its folder describes it.

    Attributes:
        folder: The folder.
        trials: The trials, with their last results. A trial that has reported and not ended is RUNNING while a program
            runs the experiment, and PENDING otherwise.
        process: The id of the process that runs the experiment; None if there is none on this machine.
    """

    folder: ExperimentFolder
    trials: list[Trial]
    process: int | None

    def objective(self) -> tuple[str | None, str | None]:
        """Return the metric and the mode of the experiment's TuneConfig, as far as they are set."""
        return self.folder.read_objective()


@dataclass(frozen=True)
class StoredSummary:
    """A summary of one experiment, from its journal alone.

    Attributes:
        name: The name of the experiment.
        path: Its folder.
        statuses: The number of trials by status; trials that have not ended are counted as PENDING.
        updated: When its journal was last written, in seconds since the epoch; None if the storage does not record it.
        process: The id of the process that runs it, if there is one on this machine.
    """

    name: str
    path: str
    statuses: Counter[str]
    updated: float | None
    process: int | None


def read_experiment(path: str | os.PathLike[str]) -> StoredExperiment:
    """Return the experiment in a folder, which must be trusted: configurations may be pickled.

    Raises:
        ValueError: The folder holds no experiment.
    """
    folder = open_folder(path)
    if not folder.exists():
        raise ValueError(_why_none(folder))
    process = find_process(folder)
    trials = read_trials(folder, folder.read_journal())
    for trial in trials:
        if trial.is_finished():
            continue
        results = folder.history(trial)[-1:]
        if results:
            metrics = results[0]["metrics"]
            trial.update_last_result(
                {name: value for name, value in metrics.items() if not name.startswith("config/")}
            )
            trial.set_status(Trial.PENDING if process is None else Trial.RUNNING)
    return StoredExperiment(folder, trials, process)


def find_experiments(path: str | os.PathLike[str]) -> Iterator[StoredSummary]:
    """Yield the experiments in the subfolders of a folder, sorted by name. Nothing is unpickled.

    Args:
        path: A local path or a URI.

    Raises:
        NotADirectoryError, FileNotFoundError: The path is not a folder.
    """
    return _experiments_in(*folders.locate(path, None))


def _experiments_in(filesystem: pafs.FileSystem, path: str) -> Iterator[StoredSummary]:
    for name in _list(filesystem, path):
        try:
            folder = open_folder(f"{path}/{name}", filesystem)
            if not folder.exists():
                continue
            statuses: dict[str, str] = {}
            for record in folder.read_journal():
                if record["event"] == "added":
                    statuses[record["trial"]] = Trial.PENDING
                elif record["event"] == "ended":
                    statuses[record["trial"]] = record["status"]
            updated = folder.updated()
        except (FileNotFoundError, PermissionError):  # deleted meanwhile, or of another user
            continue
        yield StoredSummary(name, folder.location, Counter(statuses.values()), updated, find_process(folder))


def _list(filesystem: pafs.FileSystem, path: str) -> list[str]:
    if folders.uses_local_paths(filesystem):
        return sorted(os.listdir(path))
    found = filesystem.get_file_info(pafs.FileSelector(path))
    return sorted(info.base_name for info in found if info.type == pafs.FileType.Directory)


def find_process(folder: ExperimentFolder) -> int | None:
    """Return the id of the process that runs the experiment in a folder; None if there is none on this machine.

    It is the process that has the lock file of the journal open. Trying to acquire the lock instead could make a
    program fail that is just starting.
    """
    if folder.local is None:
        return None
    lock = (folder.local / JOURNAL).with_suffix(".lock")
    try:
        process = int(lock.read_text(encoding="utf-8"))
        opened = {file.path for file in psutil.Process(process).open_files()}
    except (OSError, ValueError, psutil.Error):
        return None
    return process if os.path.realpath(lock) in opened else None


def _why_none(folder: ExperimentFolder) -> str:
    path = folder.location
    if folder.filesystem.get_file_info(folder.path).type != pafs.FileType.Directory:
        return f"{path} is not a folder: give the folder of an experiment."
    inside = [each.name for each in _experiments_in(folder.filesystem, folder.path)]
    if not inside:
        return f"{path} is not the folder of an experiment: it has no {JOURNAL}."
    names = ", ".join(inside[:5]) + (", …" if len(inside) > 5 else "")
    return f"{path} is not the folder of one experiment, but contains experiments: {names}. Give one of them."
