"""The functions for training functions, under an older path of Ray's; see `skate.train`."""

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
    """Return the number of workers."""
    return get_context().get_world_size()


def get_world_rank() -> int:
    """Return the rank of this worker among all workers."""
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """Return the rank of this worker among the workers of its node."""
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """Return the number of workers on this node."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """Return the rank of this worker's node."""
    return get_context().get_node_rank()


def get_experiment_name() -> str:
    """Return the name of the run."""
    return get_context().get_experiment_name()


def get_trial_name() -> str:
    """Return the name of the trial, which is the name of the run."""
    return get_context().get_trial_name()


def get_trial_id() -> str:
    """Return the id of the trial, which is the name of the run."""
    return get_context().get_trial_id()
