"""The folder of an experiment: its journal, the folders of its trials, and the state of the search."""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow.fs as pafs

from skate.train._storage import folders
from skate.tune._experiment.journal import Journal, read
from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.result import EXPR_RESULT_FILE

JOURNAL = "journal.jsonl"
STATE = "search_state.pkl"
TUNER = "tuner.pkl"

_NOT_IN_NAMES = re.compile(r"[^\w.,=+-]+")
_MAX_DIRNAME = 120


class ExperimentFolder:
    """The files of one experiment, on a local disk.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filesystem = pafs.LocalFileSystem()

    def exists(self) -> bool:
        """Return whether the folder holds an experiment."""
        return (self.path / JOURNAL).exists()

    def create(self) -> None:
        """Create the folder, unless it exists.

        Raises:
            TuneError: The folder cannot be created.
        """
        with self._explain_errors():
            self.path.mkdir(parents=True, exist_ok=True)

    def open_journal(self) -> Journal:
        """Open the journal for writing.

        Raises:
            TuneError: Another program runs the experiment, or the folder is not writable.
        """
        self.create()
        with self._explain_errors():
            return Journal(self.path / JOURNAL)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TuneError(
                f"the experiment cannot be stored in {self.path}: {error}. Give RunConfig a writable `storage_path`."
            ) from error

    def read_journal(self) -> Iterator[Mapping[str, Any]]:
        """Yield the records of the journal."""
        return read(self.path / JOURNAL)

    def trial_path(self, trial: Trial) -> str:
        """Return the folder of a trial."""
        return f"{self.path}/{trial.relative_logdir}"

    def create_trial(self, trial: Trial) -> None:
        """Create the folder of a trial.

        Its worker could do so, but many processes that create folders in the same one wait for each other.
        """
        trial.relative_logdir = dirname_of(trial)
        trial.local_path = self.trial_path(trial)
        try:
            os.mkdir(trial.local_path)
        except FileExistsError:
            if trial.custom_dirname:  # another trial has it
                trial.relative_logdir = f"{trial.relative_logdir}_{trial.trial_id}"
                trial.local_path = self.trial_path(trial)
                os.makedirs(trial.local_path, exist_ok=True)

    def write_error(self, trial: Trial) -> None:
        """Write the error of a failed trial to a file in its folder."""
        if trial.error_file is not None:
            Path(trial.error_file).write_text(f"{trial.error}\n", encoding="utf-8")

    def history(self, trial: Trial) -> History:
        """Return all results of a trial, which are read when they are needed."""
        return History(Path(self.trial_path(trial), EXPR_RESULT_FILE))

    def delete(self, path: str) -> None:
        """Delete a folder of the experiment, if it exists."""
        folders.delete(self.filesystem, path)

    def write_state(self, state: Any, name: str = STATE) -> None:
        """Replace a pickled file in one step."""
        new = self.path / f"{name}.new"
        new.write_bytes(cloudpickle.dumps(state))
        new.replace(self.path / name)

    def read_state(self, name: str = STATE) -> Any:
        """Return the contents of a pickled file; None if there is none."""
        try:
            return pickle.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None


class History(Sequence[Mapping[str, Any]]):
    """The results of a trial, read from its file when they are needed.

    Names of nested metrics are joined by slashes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self) -> list[Mapping[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        results = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [
            {"report": index, "rank": 0, "time": result.get("timestamp"), "metrics": dict(flat(result))}
            for index, result in enumerate(results)
        ]

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]


def flat(values: Mapping[str, Any], prefix: str = "", *, delimiter: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dictionaries, with the path of each joined by slashes."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}{delimiter}", delimiter=delimiter)
        else:
            yield f"{prefix}{key}", value


def dirname_of(trial: Trial) -> str:
    """Return the name of a trial's folder."""
    if trial.custom_dirname:
        return trial.custom_dirname
    name = f"{trial}_{trial.experiment_tag}" if trial.experiment_tag else str(trial)
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_DIRNAME]


def encode(value: Any) -> Any:
    """Return a value as JSON, or as pickled bytes if JSON would change it."""
    if _is_json(value):
        return {"json": value}
    return {"pickle": base64.b64encode(cloudpickle.dumps(value)).decode()}


def _is_json(value: Any) -> bool:
    """Return whether a value is the same after a journey through JSON."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        return all(type(key) is str and _is_json(each) for key, each in value.items())
    if kind is list:
        return all(map(_is_json, value))
    return value is None or kind in (str, int, bool)


def decode(encoded: Mapping[str, Any]) -> Any:
    """Return the value that `encode` was given."""
    return encoded["json"] if "json" in encoded else pickle.loads(base64.b64decode(encoded["pickle"]))
