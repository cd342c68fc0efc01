"""A callback for trainers that reports to Tune, in a trainable function that runs a trainer."""

from __future__ import annotations

from typing import Any

from skate.train import Checkpoint, UserCallback
from skate.tune._workers.session import need_session

__all__ = ["CHECKPOINT_PATH_KEY", "TuneReportCallback"]

CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """A callback for `RunConfig(callbacks=[…])` of a trainer that forwards the reports of rank 0 to Tune.

    A report with a checkpoint has its path as `checkpoint_path`, because the trainer has already stored it.

    Raises:
        RuntimeError: No trial runs in this process.
    """

    def __init__(self) -> None:
        need_session("TuneReportCallback()")

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Report the metrics of rank 0."""
        added = {} if checkpoint is None else {CHECKPOINT_PATH_KEY: checkpoint.path}
        need_session("TuneReportCallback()").report({**metrics[0], **added}, None)
