"""Write results as CSV."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.tune.logger._values import flatten
from skate.tune.logger.logger import LoggerCallback
from skate.tune.result import EXPR_PROGRESS_FILE

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["CSVLoggerCallback"]


class CSVLoggerCallback(LoggerCallback):
    """Writes the results of each trial to `progress.csv` in its folder.

    The first result determines the columns; nested metrics have the names of their parts, joined by slashes.
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[str]] = {}

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Append a row."""
        if trial.local_path is None:
            return
        path = Path(trial.local_path, EXPR_PROGRESS_FILE)
        row = flatten({key: value for key, value in result.items() if key != "config"})
        columns = self._columns.get(trial.trial_id)
        with path.open("a", newline="", encoding="utf-8") as file:
            if columns is None:
                columns = self._columns[trial.trial_id] = _header(path) or list(row)
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            if os.fstat(file.fileno()).st_size == 0:
                writer.writeheader()
            writer.writerow(row)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Forget the columns of the trial."""
        self._columns.pop(trial.trial_id, None)


def _header(path: Path) -> list[str]:
    """Return the columns of a file that an earlier part of the trial has written."""
    with path.open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file), [])
