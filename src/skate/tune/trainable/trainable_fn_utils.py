"""Functions for trainable functions: reporting metrics, and resuming from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.tune._workers.session import need_session
from skate.tune._workers.trainer_session import trainer_session

if TYPE_CHECKING:
    from skate.train import Checkpoint

__all__ = ["get_checkpoint", "report"]


def report(metrics: Mapping[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """Report metrics, and optionally a checkpoint, to Tune; in the training function of a trainer, to the trainer.

    The call returns when the scheduler has decided that the trial continues. If the trial is over, the call does not
    return: the function ends as with `sys.exit()`, so that `finally` clauses and context managers run.

    Args:
        metrics: The metrics by name.
        checkpoint: A checkpoint, which is copied to the trial's folder.

    Raises:
        RuntimeError: No trial runs in this process.
    """
    if trainer_session() is not None:
        from skate.train import report as report_to_trainer

        report_to_trainer(dict(arguments.mapping("metrics", metrics)), checkpoint)
        return
    session = need_session("tune.report()")
    arguments.mapping("metrics", metrics)
    if checkpoint is not None:
        from skate.train import Checkpoint

        arguments.instance("checkpoint", checkpoint, Checkpoint, "a skate.tune.Checkpoint")
    session.report(metrics, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to resume from: the latest of this trial, or None.

    Raises:
        RuntimeError: No trial runs in this process.
    """
    trainer = trainer_session()
    return need_session("tune.get_checkpoint()").checkpoint if trainer is None else trainer.checkpoint
