"""The result of a run."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from skate._api.html_tables import facts_html, table_html
from skate.air import _arguments as arguments
from skate.air import _optional
from skate.train._failures.errors import TrainingFailedError
from skate.train._reports import report_ledger
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.run_folder import RUN_FILE, RunRecord, Storage

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


class _Frame:
    """A field of a result that is created on first access, since importing pandas takes longer than a small run."""

    def __get__(self, result: Result | None, owner: type[Result] | None = None) -> pd.DataFrame | None:
        if result is None:
            return None  # the default of the field
        found = result.__dict__.get("metrics_dataframe")
        if found is None and result._history:
            rank = min(row["rank"] for row in result._history)
            found = _optional.load("pandas", "Result.metrics_dataframe").DataFrame(
                [row["metrics"] for row in result._history if row["rank"] == rank]
            )
            self.__set__(result, found)
        return found

    def __set__(self, result: Result, frame: pd.DataFrame | None) -> None:
        result.__dict__["metrics_dataframe"] = frame


@dataclass
class Result:
    """The result of a run.

    Attributes:
        metrics: The last report of rank 0, or of the lowest rank that made one; None without reports.
        checkpoint: The latest checkpoint.
        error: The exception that ended the run, if it failed.
        path: The run's folder.
        metrics_dataframe: All reports of that rank, one per row.
        best_checkpoints: The kept checkpoints, with their metrics. The best is the last one if they are kept by score;
            otherwise the latest is.
        return_value: The return value of the training function on rank 0.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None
    path: str
    metrics_dataframe: _Frame = _Frame()  # a descriptor, not a value that results share
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None
    _storage_filesystem: pafs.FileSystem | None = None
    return_value: Any = None
    _record: RunRecord | None = None
    _history: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, storage: Storage, record: RunRecord, return_value: Any = None) -> Result:
        """Return the result of a run from its folder and its record."""
        kept = [
            (_checkpoint(storage, each), each.metrics)
            for each in sorted(
                record.kept, key=lambda each: report_ledger.sort_key(each, record.score, record.order)
            )
        ]
        return cls(
            metrics=record.metrics,
            checkpoint=_checkpoint(storage, record.kept[-1]) if record.kept else None,
            error=TrainingFailedError(record.error) if record.error else None,
            path=storage.experiment_fs_path,
            best_checkpoints=kept,
            _storage_filesystem=storage.storage_filesystem,
            return_value=return_value,
            _record=record,
            _history=storage.history(),
        )

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Return the result of a run from its folder.

        Args:
            path: The run's folder: a local path or a URI.
            storage_filesystem: The filesystem of the path; determined by the path if not given.

        Raises:
            RuntimeError: The folder contains no run.
        """
        filesystem, folder = folders.locate(path, storage_filesystem)
        parent, name = posixpath.split(folder.rstrip("/"))
        storage = Storage(parent, name, filesystem)
        record = storage.read()
        if record is None:
            if filesystem.get_file_info(folder).type == pafs.FileType.NotFound:
                raise RuntimeError(
                    f"Experiment folder {folder} doesn't exist: `path` must be the folder of a run."
                )
            raise RuntimeError(
                f"{folder} contains no run: {RUN_FILE} doesn't exist in it. `path` must be the folder of one run, not "
                "of all runs."
            )
        storage.first_checkpoint = record.first_checkpoint
        return cls.of(storage, record)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The filesystem of `path`."""
        return self._storage_filesystem or pafs.LocalFileSystem()

    @property
    def config(self) -> dict[str, Any] | None:
        """The argument of the training function."""
        return None if self._record is None else self._record.config

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Return the kept checkpoint with the best value of a metric.

        Args:
            metric: Its name, as it was reported.
            mode: "max" or "min".

        Raises:
            RuntimeError: No kept checkpoint has that metric.
        """
        arguments.text("metric", metric, "the name of a metric")
        arguments.choice("mode", mode, ("max", "min"))
        if not self.best_checkpoints:
            return None
        kept = [
            report_ledger.KeptCheckpoint(index, "", metrics)
            for index, (_, metrics) in enumerate(self.best_checkpoints)
        ]
        found = report_ledger.best(kept, metric, mode)
        if found is None:
            known = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(
                f"Invalid metric name {metric!r}: the checkpoints were reported with {known}. "
                f"{arguments.hint_for_unknown(metric, known)}"
            )
        return self.best_checkpoints[found.index][0]

    def rank_metrics(self) -> pd.DataFrame:
        """Return all reports of all workers, one per row, with the columns `report`, `rank` and `time` first."""
        frame: pd.DataFrame = _optional.load("pandas", "Result.rank_metrics").DataFrame(
            [
                {"report": row["report"], "rank": row["rank"], "time": row["time"], **row["metrics"]}
                for row in self._history
            ]
        )
        return frame

    def __repr__(self) -> str:
        shown = [
            f"metrics={self.metrics!r}",
            f"path={self.path!r}",
            f"filesystem={self.filesystem.type_name!r}",
        ]
        if self.error is not None:
            shown.insert(0, f"error={type(self.error).__name__!r}")
        shown.append(f"checkpoint={self.checkpoint!r}")
        return "Result(\n  " + ",\n  ".join(shown) + "\n)"

    def _repr_html_(self) -> str:
        facts = {
            "error": None if self.error is None else type(self.error).__name__,
            "path": self.path,
            "checkpoint": None if self.checkpoint is None else self.checkpoint.path,
        }
        metrics = table_html(("metric", "value"), self.metrics.items()) if self.metrics else ""
        return facts_html("Result", facts, metrics)


def _checkpoint(storage: Storage, kept: report_ledger.KeptCheckpoint) -> Checkpoint:
    return Checkpoint(storage.build_checkpoint_path_from_name(kept.name), storage.storage_filesystem)
