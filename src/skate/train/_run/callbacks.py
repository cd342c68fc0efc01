"""Callbacks of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from skate.air.config import RunCallback

if TYPE_CHECKING:
    from skate.train._run.run_context import RunContext
    from skate.train._storage.checkpoint import Checkpoint


class UserCallback(RunCallback):
    """Receives the events of a run, in the process that called `fit`.

    Derive from it, override the methods that you need, and pass an instance in `RunConfig(callbacks=[…])`. An exception
    in a method ends the run.
    """

    # Whether a report is complete only with that of rank 0; otherwise a worker that lags behind is left out.
    _needs_rank_0: ClassVar[bool] = False

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """All workers have made a report.

        Args:
            run_context: The run.
            metrics: The metrics of each worker, by world rank.
            checkpoint: The checkpoint of the report, if it has one.
        """

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Workers have failed.

        Args:
            run_context: The run.
            worker_exceptions: The exception of each failed worker, by world rank.
        """
