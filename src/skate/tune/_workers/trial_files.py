"""The files of a trial. The worker writes them, because many workers write faster than one driver."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

from skate.air._json import as_json
from skate.tune._workers.function_thread import switching_often
from skate.tune._workers.messages import Assignment, Report, WorkerSettings
from skate.tune.error import TuneError
from skate.tune.result import DONE, EXPERIMENT_TAG, EXPR_PARAM_FILE, EXPR_RESULT_FILE, TRIAL_ID

_JSON = json.JSONEncoder(default=as_json)
_MODE = 0o666  # less the umask, as `open` creates files


class TrialFolderNotFoundError(TuneError):
    """The folder of a trial, which the driver has created, does not exist where its worker runs.

    Args:
        trial: The name of the trial.
        path: The folder.
        node: The machine of the worker.
    """

    def __init__(self, trial: str, path: str, node: str) -> None:
        super().__init__(trial, path, node)
        self.path = path
        self._text = (
            f"trial {trial} cannot store its files: its folder {path} does not exist on {node}. The nodes of a cluster "
            "must share the folder of the experiment: set RunConfig(storage_path=…) to a folder that is mounted on all "
            "of them."
        )

    def __str__(self) -> str:
        return self._text


def check_folder(error: BaseException | None) -> None:
    """Handle the error of a trial in the driver. If its folder was deleted, create it again.

    Raises:
        TrialFolderNotFoundError: The folder exists, but not where the worker runs.
    """
    if isinstance(error, TrialFolderNotFoundError):
        if os.path.isdir(error.path):
            raise error
        os.makedirs(error.path)


class TrialFiles:
    """The folder of a trial with its configuration and its results.

    A result is written once it is known whether it is the last one.

    Args:
        assignment: The trial.
        settings: The settings of the experiment.
        config: The configuration to write to the files; by default, that of the trial.

    Raises:
        TrialFolderNotFoundError: The folder does not exist on this machine.
    """

    def __init__(
        self, assignment: Assignment, settings: WorkerSettings, config: Mapping[str, Any] | None = None
    ) -> None:
        config = assignment.config if config is None else config
        self._folder = assignment.folder
        self._constants = {
            TRIAL_ID: assignment.trial_id,
            EXPERIMENT_TAG: assignment.experiment_tag,
            "config": config,
        }
        self._params = _JSON.encode(config) if settings.writes_params else None
        self._held: Mapping[str, Any] | None = None
        self._results: int | None = None  # the descriptor of the file of results, if `create` has opened it
        if settings.storage is not None:
            os.makedirs(self._folder, exist_ok=True)  # on another node than the driver's
        # Otherwise the worker does not create the folder: if the nodes share no storage, there would be two folders.
        try:
            os.stat(self._folder)
        except FileNotFoundError:
            raise TrialFolderNotFoundError(assignment.trial_name, self._folder, platform.node()) from None

    def create(self) -> None:
        """Write the configuration, and create the file of results.

        Creating files takes longer than everything else that a worker does between two short trials, so it does so
        while the function of the trial runs.
        """
        with switching_often():
            # Both files are created before one is written, because creating a file is what takes time.
            params = None
            if self._params is not None:
                params = _open(f"{self._folder}/{EXPR_PARAM_FILE}", os.O_TRUNC)
            try:
                self._results = self._open_results()
            finally:
                if params is not None:
                    assert self._params is not None
                    _write_and_close(params, self._params)

    def _open_results(self) -> int:
        return _open(f"{self._folder}/{EXPR_RESULT_FILE}", os.O_APPEND)

    def hold(self, report: Report) -> None:
        """Keep a result until `write`."""
        found = {**self._constants, **report.metrics}
        if report.checkpoint is not None:
            found["checkpoint_dir_name"] = report.checkpoint
        self._held = found

    def write(self, *, is_last: bool) -> None:
        """Write the result that is held, if there is one."""
        held, self._held = self._held, None
        if held is None:
            return
        descriptor, self._results = self._results, None
        if descriptor is not None and not os.fstat(descriptor).st_nlink:  # the function has deleted the file
            os.close(descriptor)
            descriptor = None
        if descriptor is None:
            descriptor = self._open_results()
        _write_and_close(descriptor, _JSON.encode({**held, DONE: is_last}) + "\n")

    def close(self) -> None:
        """Close the file of results, if it is open."""
        descriptor, self._results = self._results, None
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str, flag: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | flag, _MODE)


def _write_and_close(descriptor: int, text: str) -> None:
    try:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
