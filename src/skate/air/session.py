"""What a training function asks and tells, under an older path of Ray's: `skate.train` has the same and more."""

from skate.train import get_checkpoint, get_context, get_dataset_shard, report

__all__ = [
    "get_checkpoint",
    "get_dataset_shard",
    "get_experiment_name",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_trial_id",
    "get_trial_name",
    "get_world_rank",
    "get_world_size",
    "report",
]


def get_world_size() -> int:
    """Return how many workers train."""
    return get_context().get_world_size()


def get_world_rank() -> int:
    """Return this worker's number among all."""
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """Return this worker's number among those of its node."""
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """Return how many workers train on this node."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """Return the number of this worker's node."""
    return get_context().get_node_rank()


def get_experiment_name() -> str:
    """Return the name of the run."""
    return get_context().get_experiment_name()


def get_trial_name() -> str:
    """Return the name of the trial, which is the run's where nothing is tuned."""
    return get_context().get_trial_name()


def get_trial_id() -> str:
    """Return the id of the trial, which is the run's name where nothing is tuned."""
    return get_context().get_trial_id()
