"""The folder of an experiment: its journal, the folders of its trials, and the state of the search."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import pickle
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow.fs as pafs

from skate.train._storage import folders
from skate.tune._experiment.journal import Journal, decode_records, read
from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.experiment._metrics import flat
from skate.tune.result import EXPR_ERROR_FILE, EXPR_RESULT_FILE

JOURNAL = "journal.jsonl"
STATE = "search_state.pkl"
TUNER = "tuner.pkl"
OBJECTIVE = "tuner.json"

_NOT_IN_NAMES = re.compile(r"[^\w.,=+-]+")
_MAX_DIRNAME = 120
_MAX_INTEGER = 2**63 - 1  # of the JSON encoder


class ExperimentFolder:
    """The files of one experiment, on a local disk or in another filesystem.

    An experiment in another filesystem that runs on this machine is written to a local folder, which is uploaded; see
    `skate.tune._experiment.staging`. Files are read there first.

    Args:
        path: The folder in its filesystem.
        filesystem: The filesystem; the local one if not given.
        local: The local folder of an experiment in another filesystem; None if this machine does not run it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        filesystem: pafs.FileSystem | None = None,
        local: Path | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.filesystem = filesystem or pafs.LocalFileSystem()
        self.is_local = folders.uses_local_paths(self.filesystem)
        self.local = Path(self.path) if self.is_local else local

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return posixpath.basename(self.path)

    @property
    def location(self) -> str:
        """The folder, as messages show it."""
        return describe_location(self.filesystem, self.path)

    def exists(self) -> bool:
        """Return whether the folder holds an experiment."""
        return self.has(JOURNAL)

    def has(self, name: str) -> bool:
        """Return whether the folder has a file."""
        if self.local is not None and (self.local / name).exists():
            return True
        if self.is_local:
            return False
        return bool(self.filesystem.get_file_info(f"{self.path}/{name}").type == pafs.FileType.File)

    def create(self) -> None:
        """Create the folder, unless it exists.

        Raises:
            TuneError: The folder cannot be created.
        """
        with self.explain_errors():
            if self.local is None:
                self.filesystem.create_dir(self.path, recursive=True)
            else:
                self.local.mkdir(parents=True, exist_ok=True)

    def open_journal(self) -> Journal:
        """Open the journal for writing.

        Raises:
            TuneError: Another program runs the experiment, or the folder is not writable.
        """
        assert self.local is not None
        self.create()
        with self.explain_errors():
            return Journal(self.local / JOURNAL)

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Replace errors of the filesystem with an error that names the experiment.

        Raises:
            TuneError: The experiment cannot be stored.
        """
        try:
            yield
        except OSError as error:
            raise TuneError(
                f"the experiment cannot be stored in {self.location}: {error}. Set RunConfig(storage_path=…) to a "
                "writable folder."
            ) from error

    # ------------------------------------------------------------ reading

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if there is none."""
        if self.local is not None:
            try:
                return (self.local / name).read_bytes()
            except FileNotFoundError:
                if self.is_local:
                    return None
        return folders.read(self.filesystem, f"{self.path}/{name}")

    def read_journal(self) -> Iterator[Mapping[str, Any]]:
        """Yield the records of the journal.

        Raises:
            FileNotFoundError: There is no journal.
        """
        if self.local is not None and (self.is_local or (self.local / JOURNAL).exists()):
            return read(self.local / JOURNAL)
        content = self.read(JOURNAL)
        if content is None:
            raise FileNotFoundError(f"{self.location} has no {JOURNAL}")
        return decode_records(io.BytesIO(content), f"{self.location}/{JOURNAL}")

    def read_state(self, name: str = STATE) -> Any:
        """Return the contents of a pickled file; None if there is none."""
        content = self.read(name)
        return None if content is None else pickle.loads(content)

    def read_objective(self) -> tuple[str | None, str | None]:
        """Return the metric and the mode of the experiment, as far as they are set."""
        found = json.loads(self.read(OBJECTIVE) or b"{}")
        return found.get("metric"), found.get("mode")

    def updated(self) -> float | None:
        """Return when the journal was last written, in seconds since the epoch; None if that is unknown.

        Raises:
            FileNotFoundError: There is no journal.
        """
        if self.local is not None:
            return (self.local / JOURNAL).stat().st_mtime
        written = self.filesystem.get_file_info(f"{self.path}/{JOURNAL}").mtime
        return None if written is None else written.timestamp()

    def find_folders(self, paths: Collection[str]) -> set[str]:
        """Return the paths, all below this folder, that are folders. In an object store, a folder must have files."""
        if self.is_local:
            return {path for path in paths if os.path.isdir(path)}
        if not paths:
            return set()
        found: set[str] = set()
        for info in self.filesystem.get_file_info(
            pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        ):
            within = folders.relative(info.path, self.path)
            if info.type == pafs.FileType.File:
                within = posixpath.dirname(within)
            while within and within not in found:
                found.add(within)
                within = posixpath.dirname(within)
        return {path for path in paths if folders.relative(path, self.path) in found}

    # ------------------------------------------------------------ trials

    def trial_path(self, trial: Trial) -> str:
        """Return the folder of a trial."""
        return f"{self.path}/{trial.relative_logdir}"

    def set_paths(self, trial: Trial) -> None:
        """Set the paths of a trial whose folder has a name."""
        trial.local_path = None if self.local is None else f"{self.local}/{trial.relative_logdir}"
        if not self.is_local:
            trial.stored_path = self.trial_path(trial)

    def create_trial(self, trial: Trial) -> None:
        """Create the folder of a trial.

        The worker could do so, but processes that create folders in the same parent folder wait for each other.
        """
        trial.relative_logdir = dirname_of(trial)
        self.set_paths(trial)
        assert trial.local_path is not None
        try:
            os.mkdir(trial.local_path)
        except FileExistsError:
            if trial.custom_dirname:  # another trial has it
                trial.relative_logdir = f"{trial.relative_logdir}_{trial.trial_id}"
                self.set_paths(trial)
                os.makedirs(trial.local_path, exist_ok=True)

    def write_error(self, trial: Trial) -> None:
        """Write the error of a failed trial to a file in its folder."""
        if trial.error is not None and trial.local_path is not None:
            Path(trial.local_path, EXPR_ERROR_FILE).write_text(f"{trial.error}\n", encoding="utf-8")

    def history(self, trial: Trial) -> History:
        """Return all results of a trial, which are read when they are needed."""
        return History(self, f"{trial.relative_logdir}/{EXPR_RESULT_FILE}")

    # ------------------------------------------------------------ state

    def write_settings(self, settings: Any, metric: str | None, mode: str | None) -> None:
        """Replace the settings of the experiment. The metric and the mode can be read without unpickling the rest."""
        self._replace(TUNER, cloudpickle.dumps(settings))
        self._replace(OBJECTIVE, json.dumps({"metric": metric, "mode": mode}).encode())

    def write_state(self, state: Any) -> None:
        """Replace the state of the search."""
        self._replace(STATE, cloudpickle.dumps(state))

    def delete_state(self) -> None:
        """Delete the state of the search of an earlier experiment in the same folder, if there is one."""
        assert self.local is not None
        (self.local / STATE).unlink(missing_ok=True)
        if not self.is_local and self.has(STATE):
            self.filesystem.delete_file(f"{self.path}/{STATE}")

    def _replace(self, name: str, content: bytes) -> None:
        """Replace a file in one step."""
        if self.local is None:
            with self.explain_errors():
                folders.replace(self.filesystem, f"{self.path}/{name}", content)
            return
        new = self.local / f"{name}.new"
        new.write_bytes(content)
        new.replace(self.local / name)


class History(Sequence[Mapping[str, Any]]):
    """The results of a trial, read from its file when they are needed.

    Names of nested metrics are joined by slashes.
    """

    def __init__(self, folder: ExperimentFolder, name: str) -> None:
        self._folder = folder
        self._name = name

    def _read(self) -> list[Mapping[str, Any]]:
        text = (self._folder.read(self._name) or b"").decode()
        results = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [
            {"report": index, "rank": 0, "time": result.get("timestamp"), "metrics": dict(flat(result))}
            for index, result in enumerate(results)
        ]

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]


def describe_location(filesystem: pafs.FileSystem, path: str) -> str:
    """Return a folder as messages show it: its path on a local disk, or a URI."""
    if folders.uses_local_paths(filesystem):
        return path
    scheme = filesystem.type_name.removeprefix("py::").removeprefix("fsspec+")
    return f"{scheme}://{path.lstrip('/')}"


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
    """Return whether a value is unchanged by a round trip through JSON."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        return set(map(type, value)) <= {str} and all(map(_is_json, value.values()))
    if kind is list:
        return all(map(_is_json, value))
    if kind is int:
        return bool(-_MAX_INTEGER <= value <= _MAX_INTEGER)
    return value is None or kind is str or kind is bool


def decode(encoded: Mapping[str, Any]) -> Any:
    """Return the value that `encode` was given."""
    return encoded["json"] if "json" in encoded else pickle.loads(base64.b64decode(encoded["pickle"]))
