"""Functions for training functions and for trainable functions, under an older path of Ray's.

In a trial they are the functions of `skate.tune`; elsewhere, and in the training function of a trainer that a trial
runs, those of `skate.train`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate import train, tune
from skate.train import get_dataset_shard
from skate.train._workers import sessions
from skate.tune._workers.session import current_session

if TYPE_CHECKING:
    from skate.train import Checkpoint, TrainContext
    from skate.tune import TuneContext

__all__ = [
    "get_checkpoint",
    "get_dataset_shard",
    "get_experiment_name",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_world_rank",
    "get_world_size",
    "report",
]


def _in_trial() -> bool:
    return not sessions.is_active() and current_session() is not None


def _context() -> TrainContext | TuneContext:
    return tune.get_context() if _in_trial() else train.get_context()


def report(
    metrics: dict[str, Any], checkpoint: Checkpoint | None = None, checkpoint_dir_name: str | None = None
) -> None:
    """Report metrics and, optionally, a checkpoint.

    Args:
        metrics: The metrics, by name.
        checkpoint: A folder with the state to resume from.
        checkpoint_dir_name: The name of the checkpoint in the run's folder; a trial ignores it.

    Raises:
        RuntimeError: No training function and no trial runs in this process.
    """
    if _in_trial():
        tune.report(metrics, checkpoint=checkpoint)
    else:
        train.report(metrics, checkpoint, checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to resume from, which is the latest one; None at the beginning."""
    return tune.get_checkpoint() if _in_trial() else train.get_checkpoint()


def get_world_size() -> int:
    """Return the number of workers."""
    return _context().get_world_size()


def get_world_rank() -> int:
    """Return the rank of this worker among all workers."""
    return _context().get_world_rank()


def get_local_rank() -> int:
    """Return the rank of this worker among the workers of its node."""
    return _context().get_local_rank()


def get_local_world_size() -> int:
    """Return the number of workers on this node."""
    return _context().get_local_world_size()


def get_node_rank() -> int:
    """Return the rank of this worker's node."""
    return _context().get_node_rank()


def get_experiment_name() -> str:
    """Return the name of the experiment or of the run."""
    return _context().get_experiment_name()


def get_trial_name() -> str:
    """Return the name of the trial; in a run of a trainer, the name of the run."""
    return _context().get_trial_name()


def get_trial_id() -> str:
    """Return the id of the trial; in a run of a trainer, the name of the run."""
    return _context().get_trial_id()


def get_trial_dir() -> str:
    """Return the folder of the trial or of the run."""
    return _context().get_trial_dir()
