"""Metrics of datasets, training runs and experiments, from their run records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from skate.util._metrics_store import Family, Series
from skate.util._run_records import read_run, read_runs

__all__ = ["DATA_FAMILIES", "TRAIN_FAMILIES", "TUNE_FAMILIES", "run_series"]

_MAX_ENDED: Final = 20  # runs that have ended and still have metrics

# Ray has the same names and labels for datasets.
_ROWS: Final = Family("gauge", "data_output_rows", "Rows that an operator has produced.")
_BYTES: Final = Family("gauge", "data_output_bytes", "Bytes that an operator has produced.")
_QUEUED: Final = Family("gauge", "data_operator_queued_blocks", "Blocks that wait for an operator.")
_ACTIVE: Final = Family("gauge", "data_num_tasks_running", "Tasks of an operator that run.")
_OUTPUT_TIME: Final = Family(
    "gauge",
    "data_task_output_backpressure_time",
    "Seconds in which the output of an operator was not consumed.",
)
_SUBMISSION_TIME: Final = Family(
    "gauge", "data_task_submission_backpressure_time", "Seconds in which an operator waited for a processor."
)
DATA_FAMILIES: Final = (_ROWS, _BYTES, _QUEUED, _ACTIVE, _OUTPUT_TIME, _SUBMISSION_TIME)

_REPORTS: Final = Family("gauge", "train_reports", "Reports of a training run.")
_CHECKPOINTS: Final = Family("gauge", "train_checkpoints", "Checkpoints that a training run keeps.")
_FAILURES: Final = Family(
    "gauge",
    "train_failures",
    "Failures after which the workers of a training run were restarted, or it ended.",
)
_WORKERS: Final = Family("gauge", "train_workers", "Workers of a training run, by state.")
TRAIN_FAMILIES: Final = (_REPORTS, _CHECKPOINTS, _FAILURES, _WORKERS)

_TRIALS: Final = Family("gauge", "tune_trials", "Trials of an experiment, by state.")
_ITERATIONS: Final = Family(
    "gauge", "tune_results", "Results that the latest trials of an experiment have reported."
)
TUNE_FAMILIES: Final = (_TRIALS, _ITERATIONS)


def run_series(session: str) -> list[Series]:
    """Return the metrics of the runs that go on, and of the latest that have ended.

    Args:
        session: The folder of the session.
    """
    rows = read_runs(session)
    ended = [row for row in rows if row["status"] != "RUNNING"][-_MAX_ENDED:]
    running = [row for row in rows if row["status"] == "RUNNING"]
    found: list[Series] = []
    for row in [*ended, *running]:
        run = read_run(session, row["id"])
        if run is not None:  # otherwise a newer run has replaced it meanwhile
            found += _SERIES_OF[run["kind"]](run)
    return found


def _data_series(run: Mapping[str, Any]) -> Iterator[Series]:
    for operator in run.get("operators", ()):
        # Operators of a plan may have the same name, so Ray's label contains the number, too.
        tags = (
            ("dataset", run["name"]),
            ("operator", f"{operator['name']}{operator['id']}"),
            ("run", run["id"]),
        )
        yield Series(_ROWS, tags, [operator["rows_out"]])
        yield Series(_BYTES, tags, [operator["bytes_out"]])
        yield Series(_QUEUED, tags, [operator["blocks_queued"]])
        yield Series(_ACTIVE, tags, [operator["tasks_active"]])
        yield Series(_OUTPUT_TIME, tags, [operator["output_backpressure_s"]])
        yield Series(_SUBMISSION_TIME, tags, [operator["submission_backpressure_s"]])


def _train_series(run: Mapping[str, Any]) -> Iterator[Series]:
    if "reports" not in run:
        return  # its details could not be described
    tags = (("ray_train_run_name", run["name"]), ("run", run["id"]))
    yield Series(_REPORTS, tags, [run["reports"]])
    yield Series(_CHECKPOINTS, tags, [run["checkpoints_kept"]])
    yield Series(_FAILURES, tags, [run["failures"]])
    for state, number in Counter(worker["status"].upper() for worker in run["workers"]).items():
        yield Series(_WORKERS, (*tags, ("State", state)), [number])


def _tune_series(run: Mapping[str, Any]) -> Iterator[Series]:
    tags = (("experiment", run["name"]), ("run", run["id"]))
    for state, number in run.get("trials_by_status", {}).items():
        yield Series(_TRIALS, (*tags, ("State", state)), [number])
    if "trials" in run:
        yield Series(_ITERATIONS, tags, [sum(trial["iteration"] or 0 for trial in run["trials"])])


_SERIES_OF: Final = {"data": _data_series, "train": _train_series, "tune": _tune_series}
