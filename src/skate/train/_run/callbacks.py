"""What users can hook into a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air._callbacks import RunCallback

if TYPE_CHECKING:
    from skate.train._run.run_context import RunContext
    from skate.train._storage.checkpoint import Checkpoint


class UserCallback(RunCallback):
    """Is told what happens to a run, in the process that called `fit`.

    Derive from it, define what you need, and pass an instance in `RunConfig(callbacks=[…])`. What it raises ends the
    run.
    """

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """All workers have made a report.

        Args:
            run_context: The run.
            metrics: What each worker has reported, by world rank.
            checkpoint: The checkpoint of the report, if there is one.
        """

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Workers have failed.

        Args:
            run_context: The run.
            worker_exceptions: What each of them raised, by world rank.
        """
