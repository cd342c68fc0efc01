"""Write results for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.tune.logger.logger import LoggerCallback
from skate.tune.result import TRAINING_ITERATION

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["TBXLoggerCallback"]


class TBXLoggerCallback(LoggerCallback):
    """Writes the numbers of each trial's results to its folder as TensorBoard events. Needs tensorboardX."""

    def __init__(self) -> None:
        self._summary_writer = _optional.load("tensorboardX", "TBXLoggerCallback").SummaryWriter
        self._writers: dict[str, Any] = {}

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Add the numbers of a result."""
        if trial.local_path is None:
            return
        writer = self._writers.get(trial.trial_id)
        if writer is None:
            writer = self._writers[trial.trial_id] = self._summary_writer(trial.local_path, flush_secs=30)
        step = result.get(TRAINING_ITERATION, 0)
        for name, value in result.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                writer.add_scalar(f"ray/tune/{name}", float(value), global_step=step)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the file of a trial."""
        writer = self._writers.pop(trial.trial_id, None)
        if writer is not None:
            writer.close()
